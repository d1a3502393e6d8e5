-- Takedown -------------------------------------------------------------------------------------------------------
-- Remove records out of turn, each with all its members. Its entry stays in the log, where retention passes over it.
--
-- ARGV[3..]  what each is logged as, behind it its seq (6 bytes)
-- Returns for each 1, or 0 when it is not there any more.

local done = {}
for n = FIRST_PAGE, #ARGV do
  local entry = removing.entry_of(sub(ARGV[n], 1, -7), (unpack_struct('>I6', sub(ARGV[n], -6))))
  if entry.record then
    removing.remove(entry)
    leave_gap(entry.seq)
  end
  done[#done + 1] = entry.record and 1 or 0
end
call('HSET', KEYS[1], 'documents', text_of(documents))
if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
return done
