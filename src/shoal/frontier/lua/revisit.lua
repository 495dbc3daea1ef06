-- revisit: queue again a batch of pages that ended long enough ago, the oldest first.
-- ARGV  2 {seconds}: how long ago
-- ->    how many
local due = call('ZRANGEBYSCORE', key('visited'), '-inf', precise(now - args[1]), 'LIMIT', 0, AT_ONCE)
for at = #due, 1, -1 do  -- each goes to the front
  local id = due[at]
  for _, state in ipairs({'done', 'dead', 'skipped'}) do
    local packed = call('HGET', key(state), id)
    if packed then
      local name, priority, link = unpack(unpack_(packed))
      drop_record(state, id, name)
      link[5] = math.floor(now)
      queue_again(name, priority, link)
      break
    end
  end
end
save()
return #due
