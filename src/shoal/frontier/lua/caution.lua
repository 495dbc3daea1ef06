-- How carefully a host is treated after trouble: what shoal/caution.py decides, in the same words.
--
-- CAUTION is {failures, delay, refused, at_once, fine, since, good}; of a host that is well there is none.

local STEP, START_S, LEAST_S, MOST_S, DOWN, MOST_PAUSE_S, GIVEN_UP_S = 10, 0.125, 0.01, 60, 3, 300, 3600
local ABOVE, CREEP = 1.08, 0.9975
local RECENT, LEAST_RATE = 0.1, 0.001

local function is_near(delay, refused) return 0.9 * refused <= delay and delay <= 1.1 * refused end

local function longer(delay, refused, good)
  if delay == 0 then return START_S end
  if good > delay then return math.min(MOST_S, math.max(good, delay * ABOVE)) end
  return math.min(MOST_S, delay * (is_near(delay, refused) and ABOVE or 2))
end

local function shorter(delay, refused)
  if delay < 0.9 * refused then refused = 0 end
  if is_near(delay, refused) then delay = delay * CREEP else delay = math.max(delay * 0.75, refused * ABOVE) end
  if delay < LEAST_S then return 0, 0 end
  return delay, refused
end

local function slow_down(caution, sign, again)
  local failures, delay, refused, at_once, _, _, good = unpack(caution or {0, 0, 0, 0, 0, 0, 0})
  local per_host = limits.per_host or 8
  local before = math.min(at_once == 0 and per_host or at_once, per_host)
  failures = failures + 1
  local stubborn = before == 1 and failures < DOWN and not again
  local after = (sign == 'busy' or stubborn) and longer(delay, refused, good) or delay
  if sign == 'busy' then refused = delay end
  return {failures, after, refused, failures >= DOWN and 1 or math.max(1, math.floor(before / 2)), 0, now, 0}
end

local function recover(caution)
  local _, delay, refused, at_once, fine, since, good = unpack(caution)
  if fine + 1 < STEP then return {0, delay, refused, at_once, fine + 1, since, good} end
  good = delay
  delay, refused = shorter(delay, refused)
  at_once = at_once > 0 and at_once < (limits.per_host or 8) - 1 and at_once + 1 or 0
  if delay == 0 and at_once == 0 then return nil end
  return {0, delay, refused, at_once, 0, since, good}
end

local function pause_after(failures, sign, asked)
  local give_up = limits.host_give_up or 8
  if give_up > 0 and failures >= give_up then return math.max(asked, GIVEN_UP_S) end
  local before = sign == 'busy' and asked == 0 and 1 or DOWN
  if failures < before then return asked end
  return math.max(asked, math.min(MOST_PAUSE_S, (limits.host_pause_s or 5) * 2 ^ math.min(failures - before, 60)))
end

-- What the end of an attempt tells about its host: as `HostRow.learn` in sqlite_rows.py.
-- again: the page had failed before; crawl_delay: -1 = not told; asked: for how long a pause the host asks
local function learn(h, sign, again, began, elapsed, crawl_delay, asked)
  h.started = math.max(h.started, began)
  if sign ~= 'failing' then
    h.known = 1
    if elapsed > 0 then h.latency = h.latency > 0 and 0.8 * h.latency + 0.2 * elapsed or elapsed end
  end
  if crawl_delay >= 0 then
    local among = limits.politeness and limits.politeness ~= 'host'
    h.crawl_delay = among and math.max(h.crawl_delay, crawl_delay) or crawl_delay
  end
  local is_news = sign ~= '' and not (h.caution and began < h.caution[6])
  if sign == 'failing' and again and not (h.caution and h.caution[1] > 0) then is_news = false end
  if is_news and sign ~= 'fine' then
    h.caution = slow_down(h.caution, sign, again)
    asked = pause_after(h.caution[1], sign, asked)
  elseif is_news and h.caution then
    h.caution = recover(h.caution)
  end
  if asked > 0 then h.paused = math.max(h.paused, now + asked) end
end

local function count_errors(h, failed)
  h.errors = h.errors + RECENT * ((failed and 1 or 0) - h.errors)
  if h.errors < LEAST_RATE then h.errors = 0 end
end
