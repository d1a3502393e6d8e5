-- Takedown -------------------------------------------------------------------------------------------------------
-- Remove records out of turn, each with all its members. Its entry stays in the log, where retention passes over it.
--
-- ARGV[3..]  what each is logged as, behind it its seq (6 bytes)
-- Returns for each 1, or 0 when it is not there any more.

local function record_of(argument)
  local field, wanted = sub(argument, 1, -7), unpack_struct('>I6', sub(argument, -6))
  local entry = {field = field, others = {}, has_fingerprint = #field ~= DIGEST_BYTES}
  entry.key = entry.has_fingerprint and records_key(field) or digest_key(field)
  for _, record in ipairs(records_in(call('HGET', entry.key, field))) do
    if seq_of(record) == wanted then entry.record = record else table.insert(entry.others, record) end
  end
  return entry
end

local done = {}
for n = FIRST_PAGE, #ARGV do
  local entry = record_of(ARGV[n])
  if entry.record then
    remove(entry)
    removed = removed + 1
  end
  done[#done + 1] = entry.record and 1 or 0
end
call('HSET', KEYS[1], 'documents', text_of(documents))
if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
return done
