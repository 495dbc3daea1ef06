-- stats: the counters, after noticing what has become due.
-- ->    {the crawl's hash, ready hosts, producers, finished, age of the oldest queued link in seconds}
promote()
local ended = save()
local oldest = call('ZRANGE', key('ages'), 0, 0)[1]
local age = oldest and math.max(0, now - oldest * AGE) or 0
return {call('HGETALL', key('crawl')), call('ZCARD', key('ready')), producers(), ended and 1 or 0, tostring(age)}
