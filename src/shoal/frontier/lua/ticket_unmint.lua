-- ticket_unmint: free slots whose tickets could not be sent.
-- ARGV  2 {{slot, generation, ...}}
for at = 1, #args[1], 2 do
  local slot = slot_of(args[1][at])
  if slot[2] == QUEUED and slot[1] == args[1][at + 1] then put(args[1][at], slot, FREE, 0) end
end
