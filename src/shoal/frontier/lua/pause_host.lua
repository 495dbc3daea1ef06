-- pause_host: give no link of a host for some time; 0 ends a pause.
-- ARGV  2 {host, seconds}
local h = host(args[1])
h.paused = args[2] > 0 and math.max(h.paused, now + args[2]) or 0
save(true)
