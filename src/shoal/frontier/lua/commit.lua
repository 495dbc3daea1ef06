-- commit: apply all outcomes with their links, or, if any lease is no longer held, none of them.
-- ARGV  2 {outcomes, links, positions, epoch, whole}: outcomes are {token, state, reason, error, status,
--         retry, age, elapsed, size, crawl_delay (-1 = not told), sign, pause, items, visit ("" = none)};
--         links as for `add` in lib.lua;
--         positions: {store, length, before}: before is the position when the rows were written ("" = not told);
--         epoch: what the client's seen cache is good for;
--         whole: false = these are only some of the links, and the outcomes are not to be applied yet
--       3... fingerprint and msgpack of the Survey of each page that has one
-- ->    {"ok", max_depth or "", fingerprint, ...}: of links that are not even remembered | {"lost", token, ...} | {"epoch", epoch}: something was forgotten, send all
--       links again | {"moved"}: a position is another one than before, so the rows are not where they should be
local outcomes, links, positions, epoch, whole = unpack(args)

for _, v in ipairs(positions) do
  local store, _, known = unpack(v)
  if known ~= '' and tonumber(call('HGET', key('positions'), store) or -1) ~= known then return {'moved'} end
end

local tokens, lost = {}, {'lost'}
for at, v in ipairs(outcomes) do tokens[at] = v[1] end
local kept = kept_leases(tokens)
for at, packed in ipairs(kept) do
  if not packed then lost[#lost + 1] = tokens[at] end
end
if #lost > 1 then return lost end

local epoch_now = call('HGET', key('crawl'), 'epoch') or '0'
if epoch ~= '' and epoch ~= epoch_now then return {'epoch', epoch_now} end

if limits.max_queued then promote() end  -- a host has what is due
for at, lease in ipairs(whole and end_leases(tokens, kept) or {}) do
  local _, state, reason, error, status, retry_s, age_s, elapsed_s, size, crawl_delay, sign, pause_s, items, visit =
    unpack(outcomes[at])
  local h, link = host(lease.host), lease.link
  learn(h, sign, link[3] > 0, now - age_s, elapsed_s, crawl_delay, pause_s)
  count_errors(h, state == 'queued' or state == 'dead')
  count('fetches', 1)
  count('size_bytes', size)
  count('elapsed_ms', math.floor(elapsed_s * 1000 + 0.5))
  count('items', items)
  link[3] = link[3] + 1
  if visit ~= '' then set_visit(link, visit) end
  if state == 'done' then h.done = h.done + 1 end
  if state == 'done' and not link[11] then
    count('done', 1)
  elseif state ~= 'queued' then
    record_end(state, lease, reason, error, status)
  else
    count('retries', 1)
    link[6], link[7], link[8], link[9], link[10] = link[6] or '', link[7] or '', reason, error, status
    if retry_s > 0 then
      delay(lease.host, lease.priority, link, now + retry_s)
    else
      queue(lease.host, lease.priority, link, true)
    end
  end
end
for at = 3, whole and #ARGV or 0, 2 do call('HSET', key('surveys'), ARGV[at], ARGV[at + 1]) end
local _, dropped = add(links, true)
for _, v in ipairs(whole and positions or {}) do call('HSET', key('positions'), v[1], v[2]) end
save()
return {'ok', limits.max_depth or '', unpack(dropped)}
