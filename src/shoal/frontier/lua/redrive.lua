-- redrive: queue dead letters again, with fresh attempts; those that are not dead are ignored.
-- ARGV  2 {identities}
-- ->    how many
local redriven = 0
for _, id in ipairs(args[1]) do
  local packed = call('HGET', key('dead'), id)
  if packed then
    local v = unpack_(packed)
    drop_record('dead', id, v[1])
    local h = host(v[1])
    if is_given_up(h) then h.caution, h.paused = nil, 0 end
    queue_again(v[1], v[2], v[3])
    redriven = redriven + 1
  end
end
save()
return redriven
