-- ticket_claim: take a ticket.
-- ARGV  2 {slot, generation, owner}
-- ->    1 if it was worth something
local i, generation, owner = unpack(args)
local slot = slot_of(i)
if slot[2] ~= QUEUED or slot[1] ~= generation then return 0 end
slot[4], slot[5], slot[6] = owner, 0, 0
put(i, slot, RUNNING, now + running_s)
return 1
