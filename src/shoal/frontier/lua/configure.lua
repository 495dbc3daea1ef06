-- configure: set the limits, or put hosts where they belong under them.
-- ARGV  2 {limits} or {false, hosts}; hosts: names, a part of all of them
if args[1] then
  call('HSET', key('crawl'), 'limits', pack(args[1]))
else
  for _, name in ipairs(args[2]) do host(name) end
end
save(true)
