-- set_delay: set the delay of a host in place of that of the limits.
-- ARGV  2 {host, seconds}: -1 = that of the limits again
local h = host(args[1])
h.set_delay = args[2] >= 0 and args[2]
save(true)
