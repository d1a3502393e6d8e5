-- Carrying -------------------------------------------------------------------------------------------------------
-- Store in the next generation what the index had when that was begun: a stretch of the log, as it is at this moment.
--
-- ARGV[3]   the seq of the first of them
-- ARGV[4]   how many names of the log to return
-- ARGV[5..] for each as it is logged, and behind a fingerprint the places that it has there
-- Returns the last number carried, the last that is to be, and the microseconds that it took; then what follows in the log.
-- Nothing when there is no next generation.

if not beside then return {} end
local next_meta = meta[8] .. ':meta'
local progress = call('HMGET', next_meta, 'carried', 'last')
local carried, last = tonumber(progress[1]), tonumber(progress[2])
local first = seq - call('LLEN', layout.log) + 1

local function logged(from, to)
  from = math.max(from, first)
  return from, from <= to and call('LRANGE', layout.log, from - first, to - first) or {}
end

local function carry(argument, field, number)
  if field == '' then return end
  local entry = removing.entry_of(field, number)
  if not entry.record then return end
  if entry.has_fingerprint then in_next(write_at, argument, 1, entry.record) else in_next(write_digest, field, entry.record) end
end

local begin, count = tonumber(ARGV[3]), #ARGV - 4
if count > 0 and begin == carried + 1 then
  carried = begin + count - 1
  local from, names = logged(begin, carried)
  for n, field in ipairs(names) do carry(ARGV[5 + from - begin + n - 1], field, from + n - 1) end
end
carried = math.min(math.max(carried, first - 1), last)
call('HSET', next_meta, 'carried', text_of(carried))
local _, names = logged(carried + 1, math.min(carried + tonumber(ARGV[4]), last))
return {text_of(carried), text_of(last), taken(), unpack(names)}
