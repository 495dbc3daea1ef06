-- Shared by the ticket_ scripts: stands between lib.lua and each of them.
--
-- ARGV  3 {queued_s, running_s, most}, msgpack: see Pace
--
-- base:slots    hash    slot -> msgpack SLOT; "live" -> how many are not free
-- base:nodes    hash    node -> msgpack {until, capacity}
--
-- SLOT is {generation, state, deadline, owner, tries, pages}; state: 0 free, 1 queued, 2 running

local FREE, QUEUED, RUNNING = 0, 1, 2
local DOUBLINGS = 6
local queued_s, running_s, most_slots = unpack(unpack_(ARGV[3]))

local function slot_of(i)
  local packed = call('HGET', key('slots'), i)
  return packed and unpack_(packed) or {0, FREE, 0, '', 0, 0}
end

-- Change a slot; the counter of those not free moves with it.
local function put(i, slot, state, deadline)
  local live = (state ~= FREE and 1 or 0) - (slot[2] ~= FREE and 1 or 0)
  if live ~= 0 then call('HINCRBY', key('slots'), 'live', live) end
  slot[2], slot[3] = state, deadline
  if state == FREE then slot[4], slot[5], slot[6] = '', 0, 0 end
  call('HSET', key('slots'), i, pack(slot))
end

-- A new generation of a slot; returns it.
local function send(i, slot)
  slot[1] = slot[1] + 1
  slot[4], slot[6] = '', 0
  put(i, slot, QUEUED, now + queued_s * 2 ^ math.min(slot[5], DOUBLINGS))
  return slot[1]
end

local function wanted()
  local sum, all = 0, call('HVALS', key('nodes'))
  for _, packed in ipairs(all) do
    local node = unpack_(packed)
    if node[1] >= now then sum = sum + node[2] end
  end
  return math.max(1, math.min(sum, most_slots))
end

-- How many URLs could be leased now; call `save` before.
local function ready()
  local at_limit = limits.max_pages and current('done') + current('leased') >= limits.max_pages
  if paused or at_limit then return 0 end
  local queued = 0
  if call('ZCARD', key('ready')) > 0 then
    queued = current('queued') - current('held') - tonumber(call('HGET', key('crawl'), 'delayed') or 0)
  end
  return queued + inbox()
end

-- Queue free slots while there is work for more; returns {slot, generation, ...}.
local function mint()
  local live = tonumber(call('HGET', key('slots'), 'live') or 0)
  local minted, want = {}, ready()
  if live < want then want = math.min(want, wanted()) end
  local i = 0
  while live < want do
    local slot = slot_of(i)
    if slot[2] == FREE then
      minted[#minted + 1], minted[#minted + 2] = i, send(i, slot)
      live = live + 1
    end
    i = i + 1
  end
  return minted
end
