-- find: what is known of a URL.
-- ARGV  2 {fingerprint, host, url, key}: as in LINK
-- ->    {state, token or "", priority, link, record or "", not before or "", worker or "", deadline or ""}
--       or {} if it was never seen. A page that is done is only known as seen.
local found = find(unpack(args))
if not found then return {} end
local deadline = found.held and call('ZSCORE', key('deadlines'), found.held) or ''
return {found.state, found.held or '', found.priority or 0, found.link and pack(found.link) or '',
  found.record or '', found.not_before or '', found.worker or '', deadline}
