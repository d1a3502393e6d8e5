-- Walking --------------------------------------------------------------------------------------------------------
-- A stretch of the log, and the record fields that it names, as they are at one moment.
--
-- ARGV[3]  the seq to begin at; the log's first when that is later
-- ARGV[4]  how many entries at most
-- Returns documents, seq, number of records ever removed out of turn, the log's first seq, the seq begun at; then for each
-- entry what is logged ('': a gap) and the field of that name ('': there is none).

local first = seq - call('LLEN', layout.log) + 1
local from = math.max(tonumber(ARGV[3]), first)
local rows = {text_of(documents), text_of(seq), call('HGET', KEYS[1], 'removed') or '0', text_of(first), text_of(from)}
for _, field in ipairs(call('LRANGE', layout.log, from - first, from - first + tonumber(ARGV[4]) - 1)) do
  rows[#rows + 1] = field
  local key = #field == DIGEST_BYTES and stored.digest_key(field) or stored.records_key(field)
  rows[#rows + 1] = field ~= '' and call('HGET', key, field) or ''
end
return rows
