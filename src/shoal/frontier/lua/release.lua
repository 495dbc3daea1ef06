-- release: give leases back unfinished; those no longer held are ignored.
-- ARGV  2 {tokens}
for _, held in ipairs(args[1]) do give_back(held) end
save()
