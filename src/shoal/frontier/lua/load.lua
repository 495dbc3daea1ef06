-- load: bring in a part of a crawl that comes from elsewhere.
-- ARGV  2 {hosts, pages}: hosts are {host, done, known, crawl_delay, started, paused, latency, caution ({} = well),
--         set_delay (-1 = not set), errors}; pages are
--         {fingerprint, state, host, priority, LINK, fresh, not_before (0 = due), ended_at, reason, error,
--         status}, or {fingerprint} for one of which only that it is done is known
for _, v in ipairs(args[1]) do
  local h = host(v[1])
  h.done, h.known, h.crawl_delay, h.started, h.paused, h.latency = v[2], v[3], v[4], v[5], v[6], v[7]
  h.caution, h.set_delay, h.errors = v[8][1] and v[8], v[9] >= 0 and v[9], v[10]
end
for _, v in ipairs(args[2]) do
  local fingerprint, state, name, priority, link, fresh, not_before, ended_at, reason, error, status = unpack(v)
  if not see(fingerprint) then
    -- told before: scans may tell something twice
  elseif not state then
    count('done', 1)
  elseif state == 'overflow' then
    if priority <= host(name).head then
      put_into_overflow(name, priority, link)
    else
      queue(name, priority, link, false)
    end
  elseif state ~= 'queued' then
    record_end(state, {host = name, priority = priority, link = link}, reason, error, status, ended_at)
  elseif not_before > now then
    delay(name, priority, link, not_before)
  else
    queue(name, priority, link, fresh == 0)
  end
end
save()
