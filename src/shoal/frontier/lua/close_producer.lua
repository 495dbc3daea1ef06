-- close_producer: the producer will add no more; this may be the end of the crawl.
-- ARGV  2 {name}
call('ZREM', key('producers'), args[1])
save(true)
