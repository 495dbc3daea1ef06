-- reap: take back all leases of a worker known to be dead.
-- ARGV  2 {worker}
-- ->    how many
local held = {}
local all = call('HGETALL', key('leases'))
for i = 1, #all, 2 do
  if unpack_(all[i + 1])[4] == args[1] then held[#held + 1] = all[i] end
end
local taken = take_back(held)
call('ZREM', key('idle'), args[1])
save()
return taken
