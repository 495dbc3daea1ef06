-- open_producer: announce or extend a producer.
-- ARGV  2 {name, seconds}
-- ->    1 if there is room to add
call('ZADD', key('producers'), now + args[2], args[1])
return (not limits.max_queued or before.queued < limits.max_queued) and 1 or 0
