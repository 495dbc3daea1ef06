-- add: make links known, and queue those that are new.
-- ARGV  2 {links, rejects}: links as for `add` in lib.lua; rejects: {number, text} for inbox entries that are no
--         links, the first one being number 0
--       3, ... the inbox entries that all these were made of, to be removed from it
-- ->    how many were new
local removed = {}
for i = 3, #ARGV do removed[i - 3] = call('LREM', key('inbox'), -1, ARGV[i]) end
for _, v in ipairs(args[2]) do
  if removed[v[1]] == 1 then call('LPUSH', key('rejects'), v[2]) end
end
if #args[2] > 0 then call('LTRIM', key('rejects'), 0, 9999) end
local new = add(args[1], false)
save()
return new
