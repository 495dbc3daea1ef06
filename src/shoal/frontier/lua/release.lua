-- release: give leases back unfinished; those no longer held are ignored.
-- ARGV  2 {tokens}
give_back(args[1])
save()
