-- pause: give no leases (1), or give them again (0).
-- ARGV  2 {paused}
paused = args[1] == 1
call('HSET', key('crawl'), 'paused', args[1])
save(true)
