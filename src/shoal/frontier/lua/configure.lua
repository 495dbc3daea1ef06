-- configure: set the limits, or put hosts where they belong under them.
-- ARGV  2 {limits or false, hosts, settled}; hosts: names, a part of all of them; settled: these were the last.
--         The field "unsettled" says that some host may stand where the limits before wanted it
if args[1] then call('HSET', key('crawl'), 'limits', pack(args[1]), 'unsettled', 1) end
for _, name in ipairs(args[2]) do host(name) end
if args[3] then call('HDEL', key('crawl'), 'unsettled') end
save(true)
