-- ticket_mint: queue as many free slots as there is work for.
-- ->    {slot, generation, ...}
promote()
save()
return mint()
