-- open_producer: announce or extend a producer.
-- ARGV  2 {name, seconds}
-- ->    1 if there is room to add
call('ZADD', key('producers'), now + args[2], args[1])
return space() > before.overflow and 1 or 0
