-- ticket_beat: go on running, and mint.
-- ARGV  2 {slot, generation, owner, pages}
-- ->    {1 if the slot is still the owner's, {slot, generation, ...}}
local i, generation, owner, pages = unpack(args)
local slot = slot_of(i)
if slot[2] ~= RUNNING or slot[1] ~= generation or slot[4] ~= owner then return {0, {}} end
slot[6] = pages
put(i, slot, RUNNING, now + running_s)
promote()
save()
return {1, mint()}
