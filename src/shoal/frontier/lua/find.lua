-- find: what is known of a URL, but for what only its queue says.
-- ARGV  2 {fingerprint, host, url, key}: as in LINK
-- ->    {} if it was never seen | {"seen"}: queued, or done without RECORD | {"dead", "skipped" or "done", RECORD} |
--       {"leased", priority, LINK, worker, deadline}
local found = find_quickly(unpack(args))
if not found then return {} end
if found.state == 'seen' then return {'seen'} end
if found.record then return {found.state, found.record} end
local deadline = call('ZSCORE', key('deadlines'), found.held)
return {'leased', found.priority, pack(found.link), found.worker, deadline}
