-- extend: move the deadline of leases that are held.
-- ARGV  2 {tokens, seconds}
-- ->    the tokens no longer held
local lost = {}
for _, held in ipairs(args[1]) do
  if call('HEXISTS', key('leases'), held) == 1 then
    call('ZADD', key('deadlines'), now + args[2], held)
  else
    lost[#lost + 1] = held
  end
end
return lost
