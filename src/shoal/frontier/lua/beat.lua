-- beat: announce a worker.
-- ARGV  2 {seconds, worker, ...}: a Beat
local seconds = args[1]
args[1] = now + seconds
call('HSET', key('workers'), args[2], pack(args))
