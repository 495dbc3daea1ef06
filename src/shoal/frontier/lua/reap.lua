-- reap: take back all leases of a worker known to be dead.
-- ARGV  2 {worker}
-- ->    how many
local taken = take_back(leases_of(args[1]))
call('ZREM', key('idle'), args[1])
save()
return taken
