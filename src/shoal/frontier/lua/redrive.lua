-- redrive: queue dead letters again, with fresh attempts; those that are not dead are ignored.
-- ARGV  2 {identities}
-- ->    how many
local redriven = 0
for _, id in ipairs(args[1]) do
  local packed = call('HGET', key('dead'), id)
  if packed then
    local v = unpack_(packed)
    local link = v[3]
    link[3], link[4], link[8], link[9], link[10] = 0, 0, nil, nil, nil
    call('HDEL', key('dead'), id)
    call('ZREM', key('dead:order'), id)
    count('dead', -1)
    local h = host(v[1])
    if is_given_up(h) then h.caution, h.paused = nil, 0 end
    queue(v[1], v[2], link, true)
    redriven = redriven + 1
  end
end
save()
return redriven
