-- ticket_end: free a slot, and mint if there is to be another slice.
-- ARGV  2 {slot, generation, owner, again}
-- ->    {slot, generation, ...}
local i, generation, owner, again = unpack(args)
local slot = slot_of(i)
if slot[2] == RUNNING and slot[1] == generation and slot[4] == owner then put(i, slot, FREE, 0) end
if not again then return {} end
promote()
save()
return mint()
