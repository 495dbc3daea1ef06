-- stats: the counters, after noticing what has become due.
-- ->    {the crawl's hash, ready hosts, producers, finished}
promote()
local ended = save()
return {call('HGETALL', key('crawl')), call('ZCARD', key('ready')), producers(), ended and 1 or 0}
