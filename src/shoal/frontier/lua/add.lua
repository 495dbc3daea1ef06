-- add: make links known, and queue those that are new.
-- ARGV  2 {links, rejects}: links as for `add` in lib.lua; rejects: inbox entries that are no links, and why
--       3, ... the inbox entries that all these were made of, to be removed from it
-- ->    how many were new
for i = 3, #ARGV do call('LREM', key('inbox'), -1, ARGV[i]) end
for _, entry in ipairs(args[2]) do
  call('LPUSH', key('rejects'), entry)
  call('LTRIM', key('rejects'), 0, 9999)
end
local new = add(args[1])
save()
return new
