-- Shared by all scripts: stands before each of them when they are loaded.
--
-- KEYS  1 base: "shoal:{CRAWL}"; every other key is made from it, so all of them share one hash slot
-- ARGV  1 now, seconds; "" = Redis's own clock      2 the verb's arguments, msgpack
--
-- base:crawl       hash    counters, limits (msgpack), paused, epoch, token, turn, splits (of seen buckets)
-- base:hosts       hash    host key -> msgpack, see HOST
-- base:ready       zset    hosts that may be leased from now; score: lower is better
-- base:waiting     zset    hosts that may be once their time has come; score: when
-- base:given_up    zset    hosts that were given up and have links to be buried; score: no matter
-- base:q:P:HOST    list    queued links of a host with priority P: msgpack LINK
-- base:o:P:HOST    list    links of a host with priority P in the overflow: msgpack LINK
-- base:delayed     zset    msgpack {host, priority, LINK}; score: when they are due
-- base:leases      hash    token -> msgpack {host, priority, LINK, worker}
-- base:deadlines   zset    token; score: when the lease runs out
-- base:holders     hash    worker -> how many leases it holds
-- base:dead, base:skipped               hash    identity -> msgpack RECORD
-- base:dead:order, base:skipped:order   zset    identity; score: when it ended
-- base:dead:reasons, base:skipped:reasons   zset    reason; score: how many
-- base:dead:of:REASON, base:skipped:of:REASON  zset host; score: how many have this reason
-- base:done        hash    identity -> msgpack RECORD, only of pages that are to be revisited
-- base:visited     zset    identity of pages that ended, whatever their state, and are to be; score: when
-- base:seen:N      set     fingerprints, as decimal numbers so that Redis keeps them as an intset
-- base:aged        hash    minute -> how many queued links were found in it; base:ages: zset of these minutes
-- base:history     hash    minute % MINUTES -> msgpack {minute, ...}: GAINS of history.py, what the minute brought
-- base:cuts        hash    RULE \n HOST -> how many links the rule has cut
-- base:shapes:HOST hash    shape -> how many links of it the host has had
-- base:names       hash    name of a host -> its host key, if politeness is by address
-- base:contents    hash    digest -> URL that had this content first
-- base:surveys     hash    fingerprint -> msgpack of a Survey, if the crawl keeps them
-- base:positions   hash    store -> committed length
-- base:workers     hash    worker -> msgpack {until, worker, ...}: a Beat
-- base:producers   zset    name; score: until when it is open
-- base:idle        zset    workers that wait; score: since when
-- base:wake:WORKER list    what a waiting worker blocks on
-- base:inbox       list    URLs pushed by any program; base:rejects: those that were no good
--
-- LINK is {url, depth, attempts, losses, added_at, key, more, reason, error, status, visit}: url without the
-- host, "s" before it for https; more is JSON of what few links have; the next three are there after an attempt
-- that failed; visit is JSON of what the last visit found, if the page is to be revisited. Its identity is host,
-- url and key.
-- RECORD is {host, priority, LINK, ended_at, reason, error, status}.

local base = KEYS[1]
local call = redis.call
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack
local args = ARGV[2] and ARGV[2] ~= '' and unpack_(ARGV[2]) or {}

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function key(name) return base .. ':' .. name end

local function precise(number) return string.format('%.17g', number) end

local MANY = 1000  -- arguments of a command that Lua hands over at once; even, for pairs

-- Call a command with all the values, in as few calls as can be; returns what each of them answers.
local function call_with(command, name, values)
  local answers = {}
  for from = 1, #values, MANY do
    answers[#answers + 1] = call(command, key(name), unpack(values, from, math.min(from + MANY - 1, #values)))
  end
  return answers
end

-- --- the crawl: its counters are read once and moved once -------------------------------------

local deltas = {}
local function count(name, by)
  if by ~= 0 then deltas[name] = (deltas[name] or 0) + by end
end

local loaded = call('HMGET', key('crawl'),
  'limits', 'paused', 'token', 'turn', 'leased', 'done', 'queued', 'held', 'known', 'splits', 'version', 'overflow')
if not loaded[11] then return redis.error_reply('GONE the crawl is not there') end
local limits = loaded[1] and unpack_(loaded[1]) or {}
local paused = loaded[2] == '1'
local token, turn = tonumber(loaded[3]) or 0, tonumber(loaded[4]) or 0
local before = {
  leased = tonumber(loaded[5]) or 0, done = tonumber(loaded[6]) or 0,
  queued = tonumber(loaded[7]) or 0, held = tonumber(loaded[8]) or 0,
  overflow = tonumber(loaded[12]) or 0,
}
local known, buckets = tonumber(loaded[9]) or 0, 1 + (tonumber(loaded[10]) or 0)

local function current(name) return before[name] + (deltas[name] or 0) end


-- Tokens grow even if this Redis went back to an earlier moment: stores know rows by them.
local TOKENS_PER_S = 10000
local function next_token()
  local next_one = math.max(token + 1, math.floor(now * TOKENS_PER_S))
  count('token', next_one - token)
  token = next_one
  return token
end

local function next_turn() turn = turn + 1; count('turn', 1); return turn end

local holders = {}
local function count_held(worker, by) holders[worker] = (holders[worker] or 0) + by end

local AGE = 60  -- queued links are counted by the minute in which they were found
local ages = {}

local function count_queued(priority, by, delayed, retrying, added_at)
  local age = math.floor(added_at / AGE)
  ages[age] = (ages[age] or 0) + by
  count('queued', by)
  count('priority_' .. priority, by)
  if delayed then count('delayed', by) end
  if retrying then count('retrying', by) end
end

-- --- hosts: HOST is
-- {queued, leased, done, known, crawl_delay, started, paused, latency, head, due, turn, held, caution, set_delay,
-- errors}
-- started: -1e18 = never; head: the priority of the next link, -1 = none whose time has come;
-- due: 0 = ready, -1 = nothing to give, -2 = given up, with links to be buried, else when;
-- held: how many of its links the limits keep back for good; caution: see caution.lua; there is none if it is well;
-- set_delay: what somebody has set, -1 = nobody has; errors: the share of its attempts that failed. Hosts that have
-- neither lack both; those that have are given an empty caution if they are well

local hosts = {}

local function unpack_host(packed)
  local v = unpack_(packed)
  return {
    queued = v[1], leased = v[2], done = v[3], known = v[4], crawl_delay = v[5], started = v[6],
    paused = v[7], latency = v[8], head = v[9], due = v[10], turn = v[11], held = v[12],
    caution = v[13] and v[13][1] and v[13], set_delay = (v[14] or -1) >= 0 and v[14], errors = v[15] or 0,
  }
end

local function overflow_key(name, priority) return base .. ':o:' .. priority .. ':' .. name end

local function overflow_of(name)
  local sum = 0
  if current('overflow') > 0 then
    for priority = 0, 9 do sum = sum + call('LLEN', overflow_key(name, priority)) end
  end
  return sum
end

local function is_full(h) return limits.max_pages_per_host and h.done >= limits.max_pages_per_host end

local function held_of(name, h) return is_full(h) and h.queued + overflow_of(name) or 0 end

local function host(name)
  local h = hosts[name]
  if h then return h end
  local packed = call('HGET', key('hosts'), name)
  if packed then
    h = unpack_host(packed)
  else
    count('hosts', 1)
    h = {
      queued = 0, leased = 0, done = 0, known = 0, crawl_delay = 0, started = -1e18,
      paused = 0, latency = 0, head = -1, due = -1, turn = next_turn(), held = 0, errors = 0,
    }
  end
  h.was_due, h.was_rank = h.due, nil
  hosts[name] = h
  return h
end

local function delay_of(h) return math.max(h.set_delay or limits.delay_s or 0, h.crawl_delay) end

local DOWN, PROMPT_S = 3, 1  -- see shoal/caution.py

local function is_down(h) return h.caution and h.caution[1] >= DOWN end

local function at_once(h)
  local most = limits.per_host or 8
  if h.known == 0 or delay_of(h) > 0 or is_down(h) then return 1 end
  if limits.adapt == false then return most end
  local prompt = most
  if h.latency > PROMPT_S then prompt = math.max(1, math.floor(most * PROMPT_S / h.latency)) end
  if h.caution and h.caution[4] > 0 then most = math.min(most, h.caution[4]) end
  return math.min(most, prompt)
end

local function is_given_up(h)
  local give_up = limits.host_give_up or 8
  return h.caution and give_up > 0 and h.caution[1] >= give_up and h.paused > now
end

local function room_of(h)
  local room = at_once(h) - h.leased
  if limits.max_pages_per_host then
    room = math.min(room, limits.max_pages_per_host - h.done - h.leased)
  end
  return room
end

local function due_of(h)
  if h.head < 0 or is_full(h) then return -1 end
  if is_given_up(h) then return -2 end
  if room_of(h) <= 0 then return -1 end
  local at, delay = h.paused, delay_of(h)
  if h.caution and limits.adapt ~= false then delay = math.max(delay, h.caution[2]) end
  if delay > 0 then at = math.max(at, h.started + delay) end
  if at > now then return at end
  return 0
end

local function rank_of(h) return (9 - h.head) * 4398046511104 + h.turn end  -- 2^42 turns

-- Put a host where it belongs: among the ready ones, the waiting ones, those given up, or nowhere.
local function place(name, h)
  local due = due_of(h)
  local rank = due == 0 and rank_of(h) or due
  if due ~= h.was_due or rank ~= h.was_rank then
    if h.was_due == 0 and due ~= 0 then call('ZREM', key('ready'), name) end
    if h.was_due > 0 and due <= 0 then call('ZREM', key('waiting'), name) end
    if h.was_due == -2 and due ~= -2 then call('ZREM', key('given_up'), name) end
    if due == 0 then
      call('ZADD', key('ready'), rank, name)
    elseif due > 0 then
      call('ZADD', key('waiting'), due, name)
    elseif due == -2 then
      call('ZADD', key('given_up'), now, name)
    end
  end
  h.due, h.was_due, h.was_rank = due, due, rank
end

local function pack_host(h)
  local more = h.set_delay or h.errors > 0
  return pack({
    h.queued, h.leased, h.done, h.known, h.crawl_delay, h.started, h.paused, h.latency, h.head, h.due, h.turn, h.held,
    h.caution or more and {} or nil, more and (h.set_delay or -1) or nil, more and h.errors or nil,
  })
end

local function save_hosts()
  local packed = {}
  for name, h in pairs(hosts) do
    place(name, h)
    local held = held_of(name, h)
    count('held', held - h.held)
    h.held = held
    packed[#packed + 1], packed[#packed + 2] = name, pack_host(h)
  end
  call_with('HSET', 'hosts', packed)
end

-- --- host queues ------------------------------------------------------------------------------

local function queue_key(name, priority) return base .. ':q:' .. priority .. ':' .. name end

local function identity(name, link) return name .. '\n' .. link[1] .. '\n' .. (link[6] or '') end

local function queue(name, priority, link, front)
  local h = host(name)
  call(front and 'LPUSH' or 'RPUSH', queue_key(name, priority), pack(link))
  h.queued = h.queued + 1
  h.head = math.max(h.head, priority)
  count_queued(priority, 1, false, link[3] > 0, link[5])
end

local function delay(name, priority, link, until_)
  local h = host(name)
  call('ZADD', key('delayed'), until_, pack({name, priority, link}))
  h.queued = h.queued + 1
  count_queued(priority, 1, true, link[3] > 0, link[5])
end

-- --- overflow: a host draws on it as soon as it has nothing as good left in its queues ----------

local AT_ONCE = 200  -- so many at most in one go, that nobody waits for Redis; for links of the overflow as in base.py

local function space() return limits.max_queued and limits.max_queued - current('queued') or math.huge end

local function overflows(name, priority)
  if host(name).head < priority then return false end
  return space() <= 0 or current('overflow') > 0 and call('LLEN', overflow_key(name, priority)) > 0
end

local function put_into_overflow(name, priority, link)
  call('RPUSH', overflow_key(name, priority), pack(link))
  count('overflow', 1)
end

local function return_links(name, h)
  if current('overflow') == 0 then return end
  for priority = 9, h.head + 1, -1 do
    local from = overflow_key(name, priority)
    local links = call('LRANGE', from, 0, math.min(math.max(1, space()), AT_ONCE) - 1)
    if #links > 0 then
      call('LTRIM', from, #links, -1)
      call('RPUSH', queue_key(name, priority), unpack(links))
      count('overflow', -#links)
      h.queued = h.queued + #links
      h.head = priority
      for _, packed in ipairs(links) do count_queued(priority, 1, false, false, unpack_(packed)[5]) end
      return
    end
  end
end

local function find_head(name, h, from)
  h.head = -1
  for priority = from, 0, -1 do
    if call('LLEN', queue_key(name, priority)) > 0 then
      h.head = priority
      break
    end
  end
  return_links(name, h)
end

-- --- seen: linear hashing over intsets --------------------------------------------------------

local PER_BUCKET = 200  -- a bucket about to be split holds twice as many; intsets end at 512

local function bucket_of(fingerprint)
  local hash = tonumber(string.sub(fingerprint, -9))
  if hash < 0 then hash = -hash end
  local power = 1
  while power * 2 <= buckets do power = power * 2 end
  local bucket = hash % (power * 2)
  if bucket >= buckets then bucket = hash % power end
  return bucket
end

local function seen_key(bucket) return base .. ':seen:' .. bucket end

local function split_bucket()
  local power = 1
  while power * 2 <= buckets do power = power * 2 end
  local from = seen_key(buckets - power)
  buckets = buckets + 1
  local moved = {}
  for _, fingerprint in ipairs(call('SMEMBERS', from)) do
    if bucket_of(fingerprint) == buckets - 1 then moved[#moved + 1] = fingerprint end
  end
  if #moved > 0 then
    call('SREM', from, unpack(moved))
    call('SADD', seen_key(buckets - 1), unpack(moved))
  end
end

local function is_seen(fingerprint)
  return call('SISMEMBER', seen_key(bucket_of(fingerprint)), fingerprint) == 1
end

-- Whether it is new; from now on it is seen.
local function see(fingerprint)
  if call('SADD', seen_key(bucket_of(fingerprint)), fingerprint) == 0 then return false end
  known = known + 1
  count('known', 1)
  if known > buckets * PER_BUCKET then
    count('splits', 1)
    split_bucket()
  end
  return true
end

-- --- leases -----------------------------------------------------------------------------------

-- What is kept of leases, packed, in the order of the tokens; false for those that are no longer held.
local function kept_leases(tokens)
  local kept = {}
  for _, answer in ipairs(call_with('HMGET', 'leases', tokens)) do
    for _, packed in ipairs(answer) do kept[#kept + 1] = packed end
  end
  return kept
end

-- Take leases off the books; returns them in the order of the tokens, false for those that are no longer held.
-- kept: of these, if it is known.
local function end_leases(tokens, kept)
  kept = kept or kept_leases(tokens)
  call_with('HDEL', 'leases', tokens)
  call_with('ZREM', 'deadlines', tokens)
  local ended = {}
  for at, packed in ipairs(kept) do
    ended[at] = false
    if packed then
      local v = unpack_(packed)
      local h = host(v[1])
      h.leased = h.leased - 1
      count('leased', -1)
      count_held(v[4], -1)
      ended[at] = {host = v[1], priority = v[2], link = v[3]}
    end
  end
  return ended
end

-- Count dead and skipped pages by reason, and for each reason by host.
local function tally(state, reason, name, by)
  for kind, member in pairs({[':reasons'] = reason, [':of:' .. reason] = name}) do
    if tonumber(call('ZINCRBY', key(state .. kind), by, member)) <= 0 then call('ZREM', key(state .. kind), member) end
  end
end

local function record_end(state, lease, reason, error, status, ended_at)
  local id = identity(lease.host, lease.link)
  ended_at = ended_at or now
  count(state, 1)
  call('HSET', key(state), id, pack({lease.host, lease.priority, lease.link, ended_at, reason, error, status}))
  if state ~= 'done' then
    call('ZADD', key(state .. ':order'), ended_at, id)
    tally(state, reason, lease.host, 1)
  end
  if lease.link[11] then call('ZADD', key('visited'), ended_at, id) end
end

-- The opposite of record_end.
local function drop_record(state, id, name)
  count(state, -1)
  if state ~= 'done' then
    local v = unpack_(call('HGET', key(state), id))
    tally(state, v[5], v[1], -1)
  end
  call('HDEL', key(state), id)
  call('ZREM', key(state .. ':order'), id)
  call('ZREM', key('visited'), id)
  if state == 'done' then
    local h = host(name)
    h.done = h.done - 1
  end
end

-- Fill the places up to the visit: an array may have no holes.
local function set_visit(link, visit)
  for at = 6, 9 do link[at] = link[at] or '' end
  link[10], link[11] = link[10] or 0, visit
end

-- Queue a page that has ended, with fresh attempts.
local function queue_again(name, priority, link)
  link[3], link[4], link[8], link[9], link[10] = 0, 0, nil, nil, nil
  if link[11] then set_visit(link, link[11]) end
  queue(name, priority, link, true)
end

local function started(name, at)
  local h = host(name)
  h.started = math.max(h.started, at)
end

-- Queue leased pages again, as if they had never been leased.
local function give_back(tokens)
  for _, lease in ipairs(end_leases(tokens)) do
    if lease then
      started(lease.host, now)
      queue(lease.host, lease.priority, lease.link, true)
    end
  end
end

local function leases_of(worker)
  local held = {}
  local all = call('HGETALL', key('leases'))
  for i = 1, #all, 2 do
    if unpack_(all[i + 1])[4] == worker then held[#held + 1] = all[i] end
  end
  return held
end

-- The worker of these leases is dead or stalled: queue their pages again, but not for ever.
local function take_back(tokens)
  for _, lease in ipairs(end_leases(tokens)) do
    local link = lease.link
    started(lease.host, now)
    link[4] = link[4] + 1
    count('losses', 1)
    if link[4] >= (limits.max_losses or 5) then
      record_end('dead', lease, 'lease lost',
        'its worker died or stalled ' .. link[4] .. ' times while it held this page', link[10] or 0)
    else
      queue(lease.host, lease.priority, link, true)
    end
  end
  return #tokens
end

-- Whether the link at the end of a queue, where those stand that were never tried, is one.
local function ends_untried(queued) return unpack_(call('LINDEX', queued, -1))[3] == 0 end

-- Take the next link of a host out of its queue: its priority, and its LINK packed and unpacked.
local function next_link(name, h)
  local priority = h.head
  local queued = queue_key(name, priority)
  local packed = call(is_down(h) and ends_untried(queued) and 'RPOP' or 'LPOP', queued)
  local link = unpack_(packed)
  h.queued = h.queued - 1
  count_queued(priority, -1, false, link[3] > 0, link[5])
  if call('LLEN', queued) == 0 then find_head(name, h, priority - 1) end
  return priority, packed, link
end

-- --- traps ------------------------------------------------------------------------------------

local MOST_CUT, MOST_SHAPES = 1000, 1000  -- as in base.py

-- A link is cut: whether it is to be remembered.
local function cut(name, rule) return call('HINCRBY', key('cuts'), rule .. '\n' .. name, 1) <= MOST_CUT end

local function make_room(counts)
  if call('HLEN', counts) < MOST_SHAPES then return end
  local all, least = call('HGETALL', counts), math.huge
  for i = 2, #all, 2 do least = math.min(least, tonumber(all[i])) end
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) == least then
      call('HDEL', counts, all[i])
    else
      call('HINCRBY', counts, all[i], -least)
    end
  end
end

-- The rule of a quota, each {rule, shape, most}, that is full; without one, "", and all of them are counted.
local function full(name, quotas)
  local counts = base .. ':shapes:' .. name
  for _, quota in ipairs(quotas) do
    if tonumber(call('HGET', counts, quota[2]) or 0) >= quota[3] then return quota[1] end
  end
  for _, quota in ipairs(quotas) do
    if call('HEXISTS', counts, quota[2]) == 0 then make_room(counts) end
    call('HINCRBY', counts, quota[2], 1)
  end
  return ''
end

-- Make the links known that are new; each is {fingerprint, host, priority, depth, delay, url, key, more, trap,
-- quotas}, where the last two or four may be missing. found: by pages, so that the overflow is for them.
-- Returns how many were new, and the fingerprints of those that are not even remembered.
local function add(links, found)
  local new, dropped = 0, {}
  for _, v in ipairs(links) do
    local fingerprint, name, priority, depth, delay_s, url, k, more, trap, quotas = unpack(v, 1, 10)
    local too_deep, rule = limits.max_depth and depth > limits.max_depth, ''
    if trap and not too_deep and not is_seen(fingerprint) then
      rule = trap ~= '' and trap or full(name, quotas)
    end
    if not too_deep then
      if rule ~= '' and not cut(name, rule) then
        dropped[#dropped + 1] = fingerprint
      elseif see(fingerprint) then
        new = new + 1
        local link = {url, depth, 0, 0, math.floor(now), k, more}  -- k and more are nil on most
        if rule ~= '' then
          host(name)
          record_end('skipped', {host = name, priority = priority, link = link}, rule, '', 0)
        elseif delay_s > 0 then
          delay(name, priority, link, now + delay_s)
        elseif found and overflows(name, priority) then
          put_into_overflow(name, priority, link)
        else
          queue(name, priority, link, false)
        end
      end
    end
  end
  return new, dropped
end

-- Notice what has become due with time: at most so much in one go that nobody waits for Redis.
local function promote()
  local due = call('ZRANGEBYSCORE', key('delayed'), '-inf', now, 'LIMIT', 0, AT_ONCE)
  for _, packed in ipairs(due) do
    local v = unpack_(packed)
    call('ZREM', key('delayed'), packed)
    call(v[3][3] > 0 and 'LPUSH' or 'RPUSH', queue_key(v[1], v[2]), pack(v[3]))
    local h = host(v[1])
    h.head = math.max(h.head, v[2])
    count('delayed', -1)
  end
  for _, name in ipairs(call('ZRANGEBYSCORE', key('waiting'), '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    host(name)
  end
  for _, name in ipairs(call('ZRANGE', key('given_up'), 0, AT_ONCE - 1)) do host(name) end
  for name, h in pairs(hosts) do place(name, h) end
end

-- Make dead letters of what is queued on hosts that were given up: a part of it.
local function bury_given_up()
  for _ = 1, AT_ONCE do
    local name = call('ZRANGE', key('given_up'), 0, 0)[1]
    if not name then break end
    local h = host(name)
    if due_of(h) == -2 then
      local priority, _, link = next_link(name, h)
      local error = 'given up after ' .. h.caution[1] .. ' failures in a row'
      record_end('dead', {host = name, priority = priority, link = link}, 'host down', error, link[10] or 0)
    end
    place(name, h)
  end
end

-- --- one URL, for people: this looks through queues ------------------------------------------

local function is_link(link, url, k) return link[1] == url and (link[6] or '') == k end

local WINDOW = 1000  -- of a queue that is looked through, so that Lua never holds all of it

local function find_in_list(state, queued, priority, url, k)
  local head = pack(url)  -- a LINK begins with its url
  for from = 0, call('LLEN', queued) - 1, WINDOW do
    for _, packed in ipairs(call('LRANGE', queued, from, from + WINDOW - 1)) do
      if string.sub(packed, 2, 1 + #head) == head then
        local link = unpack_(packed)
        if is_link(link, url, k) then
          return {state = state, priority = priority, link = link, packed = packed}
        end
      end
    end
  end
end

local function find_queued(name, url, k)
  for priority = 9, 0, -1 do
    local found = find_in_list('queued', queue_key(name, priority), priority, url, k)
      or find_in_list('overflow', overflow_key(name, priority), priority, url, k)
    if found then return found end
  end
  local delayed = call('ZRANGE', key('delayed'), 0, -1, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local v = unpack_(delayed[i])
    if v[1] == name and is_link(v[3], url, k) then
      return {state = 'queued', priority = v[2], link = v[3], packed = delayed[i], not_before = delayed[i + 1]}
    end
  end
end

local function find_leased(name, url, k)
  local leases = call('HGETALL', key('leases'))
  for i = 1, #leases, 2 do
    local v = unpack_(leases[i + 1])
    if v[1] == name and is_link(v[3], url, k) then
      return {state = 'leased', priority = v[2], link = v[3], worker = v[4], held = leases[i]}
    end
  end
end

-- What can be said without looking through queues: nil = never seen; otherwise "seen": queued or done.
local function find_quickly(fingerprint, name, url, k)
  if not is_seen(fingerprint) then return nil end
  local id = identity(name, {url, 0, 0, 0, 0, k})
  for _, state in ipairs({'dead', 'skipped', 'done'}) do
    local record = call('HGET', key(state), id)
    if record then return {state = state, record = record} end
  end
  return find_leased(name, url, k) or {state = 'seen'}
end

local function find(fingerprint, name, url, k)
  local found = find_quickly(fingerprint, name, url, k)
  if not found or found.state ~= 'seen' then return found end
  return find_queued(name, url, k) or {state = 'done'}
end

local function unqueue(name, found)
  local h = host(name)
  if found.state == 'overflow' then
    call('LREM', overflow_key(name, found.priority), 1, found.packed)
    count('overflow', -1)
    return
  end
  h.queued = h.queued - 1
  count_queued(found.priority, -1, found.not_before ~= nil, found.link[3] > 0, found.link[5])
  if found.not_before then
    call('ZREM', key('delayed'), found.packed)
  else
    call('LREM', queue_key(name, found.priority), 1, found.packed)
    find_head(name, h, 9)
  end
end

-- --- the end ----------------------------------------------------------------------------------

local function producers() return call('ZCOUNT', key('producers'), '(' .. precise(now), '+inf') end

local function inbox() return call('LLEN', key('inbox')) end

local function finished()
  local at_limit = limits.max_pages and current('done') >= limits.max_pages
  local nothing_left = at_limit or current('queued') + current('overflow') == current('held') and inbox() == 0
  return current('leased') == 0 and nothing_left and producers() == 0
end

local MINUTE, MINUTES = 60, 4320  -- as in history.py
local GAINS = {
  'done', 'dead', 'skipped', 'fetches', 'retries', 'losses', 'known', 'items', 'size_bytes', 'elapsed_ms',
}

-- Add to the present minute what the counters gain. An older minute in its place has left the window.
local function save_gains()
  local minute, kept
  for at, name in ipairs(GAINS) do
    if (deltas[name] or 0) > 0 then
      if not kept then
        minute = math.floor(now / MINUTE)
        local packed = call('HGET', key('history'), minute % MINUTES)
        kept = packed and unpack_(packed)
        if not kept or kept[1] ~= minute then kept = {minute, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
      end
      kept[at + 1] = kept[at + 1] + deltas[name]
    end
  end
  if kept then call('HSET', key('history'), minute % MINUTES, pack(kept)) end
end

local IDLE_S = 60  -- a worker that did not ask again for so long is dead

-- Write back what has changed, and wake as many idle workers as there is work for, or all at the end; those
-- first that asked last, since they are alive.
-- always: even if no counter has moved.
local function save(always)
  save_hosts()
  local changed = next(deltas) ~= nil or always
  local ended = finished()
  save_gains()
  for name, by in pairs(deltas) do call('HINCRBY', key('crawl'), name, by) end
  for age, by in pairs(ages) do
    if by ~= 0 and tonumber(call('HINCRBY', key('aged'), age, by)) > 0 then
      call('ZADD', key('ages'), age, age)
    elseif by ~= 0 then
      call('HDEL', key('aged'), age)
      call('ZREM', key('ages'), age)
    end
  end
  for worker, by in pairs(holders) do
    if by ~= 0 and tonumber(call('HINCRBY', key('holders'), worker, by)) <= 0 then
      call('HDEL', key('holders'), worker)
    end
  end
  local idle = call('ZCARD', key('idle'))
  if idle > 0 and changed then
    local wake = ended and idle or math.min(idle, call('ZCARD', key('ready')))
    if wake > 0 and not (paused and not ended) then
      for _, worker in ipairs(call('ZREVRANGE', key('idle'), 0, wake - 1)) do
        call('LPUSH', key('wake:' .. worker), '1')
        call('EXPIRE', key('wake:' .. worker), 60)
        call('ZREM', key('idle'), worker)
      end
    end
  end
  return ended
end

