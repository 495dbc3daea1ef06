-- workers: who was heard of lately, and who holds leases; forgets those not heard of.
-- ->    {{msgpack {until, worker, ...: a Beat}, ...}, {worker, leases, ...}}
local alive = {}
local all = call('HGETALL', key('workers'))
for i = 1, #all, 2 do
  if unpack_(all[i + 1])[1] >= now then
    alive[#alive + 1] = all[i + 1]
  else
    call('HDEL', key('workers'), all[i])
  end
end
return {alive, call('HGETALL', key('holders'))}
