-- ticket_fail: free a running slot, and give back the leases of its owner.
-- ARGV  2 {slot, generation, lost}
-- ->    1 if it was running
local i, generation, lost = unpack(args)
local slot = slot_of(i)
if slot[2] ~= RUNNING or slot[1] ~= generation then return 0 end
local held = leases_of(slot[4])
call('ZREM', key('idle'), slot[4])
put(i, slot, FREE, 0)
if lost then
  take_back(held)
else
  give_back(held)
end
save()
return 1
