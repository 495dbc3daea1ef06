-- ticket_add: as add, and mint.
-- ARGV  2 {links}
-- ->    {how many were new, {slot, generation, ...}}
local new = add(args[1], false)
promote()
save()
return {new, mint()}
