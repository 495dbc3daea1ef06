-- ticket_tick: a node is alive; put right what was lost, and mint.
-- ARGV  2 {node, capacity, seconds}
-- ->    {slot, generation, ...}
local node, capacity, seconds = unpack(args)
if capacity == 0 then
  call('HDEL', key('nodes'), node)
  return {}
end
call('HSET', key('nodes'), node, pack({now + seconds, capacity}))
take_back(call('ZRANGEBYSCORE', key('deadlines'), '-inf', '(' .. string.format('%.17g', now), 'LIMIT', 0, AT_ONCE))
promote()
bury_given_up()
save()

local sent, work, want = {}, ready(), wanted()
local all = call('HGETALL', key('slots'))
for at = 1, #all, 2 do
  local i = tonumber(all[at])
  local slot = i and unpack_(all[at + 1])
  if slot and slot[2] ~= FREE and slot[3] < now then
    if slot[2] == QUEUED and i < want and work > 0 then
      slot[5] = slot[5] + 1
      sent[#sent + 1], sent[#sent + 2] = i, send(i, slot)
    else
      put(i, slot, FREE, 0)
    end
  end
end
for _, each in ipairs(mint()) do sent[#sent + 1] = each end
return sent
