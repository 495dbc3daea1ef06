-- ticket_crew: slots in use and nodes alive; forgets those not heard of.
-- ->    {{slot, msgpack SLOT, ...}, {node, capacity, ...}}
local slots, nodes = {}, {}
local all = call('HGETALL', key('slots'))
for at = 1, #all, 2 do
  if all[at] ~= 'live' and unpack_(all[at + 1])[2] ~= FREE then
    slots[#slots + 1], slots[#slots + 2] = tonumber(all[at]), all[at + 1]
  end
end
all = call('HGETALL', key('nodes'))
for at = 1, #all, 2 do
  local node = unpack_(all[at + 1])
  if node[1] >= now then
    nodes[#nodes + 1], nodes[#nodes + 2] = all[at], node[2]
  else
    call('HDEL', key('nodes'), all[at])
  end
end
return {slots, nodes}
