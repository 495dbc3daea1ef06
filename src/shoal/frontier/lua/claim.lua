-- claim: contents that pages have.
-- ARGV  2 {digest, url, ...}
-- ->    {url, ...}: which had each content first
local first = {}
for i = 1, #args, 2 do
  call('HSETNX', key('contents'), args[i], args[i + 1])
  first[#first + 1] = call('HGET', key('contents'), args[i])
end
return first
