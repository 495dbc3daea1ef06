-- beat: announce a worker.
-- ARGV  2 {seconds, worker, concurrency, since, pages per second}
local seconds, worker, concurrency, since, pages_per_s = unpack(args)
call('HSET', key('workers'), worker, pack({now + seconds, worker, concurrency, since, pages_per_s}))
