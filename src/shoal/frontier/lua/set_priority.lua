-- set_priority: move a queued link to another priority.
-- ARGV  2 {fingerprint, host, url, key, priority}
-- ->    1 if it was queued
local fingerprint, name, url, k, priority = unpack(args)
local found = find(fingerprint, name, url, k)
if not found or found.state ~= 'queued' then return 0 end
unqueue(name, found)
local retrying = found.link[3] > 0
if found.not_before then
  delay(name, priority, pack(found.link), found.not_before, retrying)
else
  queue(name, priority, pack(found.link), false, retrying)
end
save()
return 1
