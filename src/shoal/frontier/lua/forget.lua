-- forget: un-see a URL, unless it is leased or unknown.
-- ARGV  2 {fingerprint, host, url, key}
-- ->    1 if it was forgotten
local fingerprint, name, url, k = unpack(args)
local found = find(fingerprint, name, url, k)
if not found or found.state == 'leased' then return 0 end
if found.state == 'queued' or found.state == 'overflow' then
  unqueue(name, found)
else
  drop_record(found.state, identity(name, {url, 0, 0, 0, 0, k}), name)
end
call('HDEL', key('surveys'), fingerprint)
call('SREM', seen_key(bucket_of(fingerprint)), fingerprint)
count('known', -1)
count('epoch', 1)
save()
return 1
