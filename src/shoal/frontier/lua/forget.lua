-- forget: un-see a URL, unless it is leased or unknown.
-- ARGV  2 {fingerprint, host, url, key}
-- ->    1 if it was forgotten
local fingerprint, name, url, k = unpack(args)
local found = find(fingerprint, name, url, k)
if not found or found.state == 'leased' then return 0 end
local h = host(name)
if found.state == 'queued' or found.state == 'overflow' then
  unqueue(name, found)
elseif found.state == 'done' then
  count('done', -1)
  h.done = h.done - 1
else
  local id = identity(name, {url, 0, 0, 0, 0, k})
  count(found.state, -1)
  call('HDEL', key(found.state), id)
  call('ZREM', key(found.state .. ':order'), id)
end
call('SREM', seen_key(bucket_of(fingerprint)), fingerprint)
count('known', -1)
count('epoch', 1)
save()
return 1
