-- set_priority: queue a link that is queued, or in the overflow, with another priority.
-- ARGV  2 {fingerprint, host, url, key, priority}
-- ->    1 if it was one of these
local fingerprint, name, url, k, priority = unpack(args)
local found = find(fingerprint, name, url, k)
if not found or (found.state ~= 'queued' and found.state ~= 'overflow') then return 0 end
unqueue(name, found)
if found.not_before then
  delay(name, priority, found.link, found.not_before)
else
  queue(name, priority, found.link, false)
end
save()
return 1
