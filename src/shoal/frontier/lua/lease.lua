-- lease: take up to a number of links that may be fetched now.
-- ARGV  2 {limit, seconds, worker, held}: held: the tokens that the worker knows to hold, so that what it was
--         given without getting the answer, or before Redis went back, is given back; false: it knows all
-- ->    {{token, host, priority, link, ...}, when to ask again ("" = never), finished, epoch, inbox length}
local limit, seconds, worker, held = unpack(args)

if held then
  local known_to_it = {}
  for _, each in ipairs(held) do known_to_it[string.format('%.0f', each)] = true end
  local unknown = {}
  for _, each in ipairs(leases_of(worker)) do
    if not known_to_it[each] then unknown[#unknown + 1] = each end
  end
  give_back(unknown)
end
take_back(call('ZRANGEBYSCORE', key('deadlines'), '-inf', '(' .. precise(now), 'LIMIT', 0, AT_ONCE))
promote()
bury_given_up()

local room = math.huge
if limits.max_pages then room = limits.max_pages - current('done') - current('leased') end
if paused then room = 0 end

local given, leases, deadlines = {}, {}, {}
while #given < math.min(room, limit) * 4 do
  local name = call('ZRANGE', key('ready'), 0, 0)[1]
  if not name then break end
  local h = host(name)
  local priority, packed, link = next_link(name, h)
  h.leased = h.leased + 1
  h.turn = next_turn()
  if h.caution then h.started = math.max(h.started, now) end
  count('leased', 1)
  count_held(worker, 1)
  local new = next_token()
  leases[#leases + 1], leases[#leases + 2] = new, pack({name, priority, link, worker})
  deadlines[#deadlines + 1], deadlines[#deadlines + 2] = precise(now + seconds), new
  place(name, h)
  given[#given + 1], given[#given + 2], given[#given + 3], given[#given + 4] = new, name, priority, packed
end

call_with('HSET', 'leases', leases)
call_with('ZADD', 'deadlines', deadlines)
call('ZREM', key('idle'), worker)
call('ZREMRANGEBYSCORE', key('idle'), '-inf', now - IDLE_S)
local ended = save()

local again = ''
if not ended then
  local next_at = math.huge
  local function earliest(found) if found[2] then next_at = math.min(next_at, tonumber(found[2])) end end
  earliest(call('ZRANGE', key('waiting'), 0, 0, 'WITHSCORES'))
  earliest(call('ZRANGE', key('delayed'), 0, 0, 'WITHSCORES'))
  earliest(call('ZRANGE', key('deadlines'), 0, 0, 'WITHSCORES'))
  earliest(call('ZRANGEBYSCORE', key('producers'), '(' .. precise(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  local more = #given == limit * 4 and room > limit and call('ZCARD', key('ready')) > 0
  if more or inbox() > 0 or call('ZCARD', key('given_up')) > 0 then next_at = now end
  if next_at < math.huge then again = precise(math.max(0, next_at - now)) end
end
if #given < limit * 4 then call('ZADD', key('idle'), now, worker) end
return {given, again, ended and 1 or 0, call('HGET', key('crawl'), 'epoch') or '0', inbox()}
