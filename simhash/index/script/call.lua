-- Judge a batch of pages, in order, in one atomic step; store those that match nothing.
--
-- The script is made of what an index's layout is (Layout.for_script: layout, permutations()) and of the files of this
-- folder, one behind the other: call (this), bits, records, beside, retention, judging,
-- crowds, journals, batch. Which keys there are, and the bytes of records, is told in layout.py.
--
-- KEYS[1]  ns:meta; all other keys are made here or come with the pages (so: one primary, not a cluster)
-- ARGV[1]  generation
-- ARGV[2]  call: JSON {name, work, crowd, history, now_ms, max_age_ms, max_documents (each -1: none), expire_per_page,
--          partitions, base, decided, read, next}; each partition [journal key, committed offset or -1]; base: the generation of the base, '': none;
--          next: what the keys of the generation that lies beside this one start with, '': none (beside.lua);
--          decided: numbers of the pages (from 1) that are known from it; read: only with a page alone, see crowds.lua
-- ARGV[3..] pages: kind 'f' (has a fingerprint) or 'd' (digest only), partition (2 bytes; 0: no journal), offset (6),
--          observation (16), body (behind 2 bytes of length), then
--          'f': fingerprint; key of its records; for each table key and score; for each table the member; for each
--               band key and score (dashes: no band); once more, without bands, for the next generation.
--          'd': tagged digest (17), key of its record.
--           behind the pages: what the base answers for each of the decided ones, as it would be returned
-- A record is: seq (6), insertion time in ms (6), body.   Integers are big-endian, scores are decimal text.
-- Returns one answer a page: candidates compared (4 bytes), then 'u' seq | 'd' distance (1 byte) record | 'c': the page meets
-- a crowd and has to be judged alone. Behind them, the microseconds that it took (see `taken`). Answers for the first pages
-- only when `work` was used up or behind a 'c': the rest must come again. Calls of the same name that were sent meanwhile are
-- then given no answers, as their pages would be judged out of turn.

local FIRST_PAGE = 3
local asked = cjson.decode(ARGV[2])
local OBSERVATION, BODY = 8, 13        -- bytes of an observation in a record; where a record's body starts
local VERIFIER = BODY + OBSERVATION    -- where a record's verifier starts
local COMPARED = layout.compared_bytes -- of the verifier, the bytes before its band keys
local BAND_BYTES, NO_BAND = 4, '\0\0\0\0'
local byte, sub, char = string.byte, string.sub, string.char
local bxor = bit.bxor
local pack, unpack_struct, call = struct.pack, struct.unpack, redis.call

local meta = call('HMGET', KEYS[1], 'generation', 'seq', 'documents', 'history', 'base', 'cut', 'most_candidates',
  'next')
if meta[1] ~= ARGV[1] then
  return redis.error_reply('GENERATION ' .. tostring(meta[1]))
end
-- The index's history and this server's own replication id must be those that the caller counts on (history.lua), and
-- so must be the base. Operators' tools, which tell no verdicts, count on none.
if asked.history then
  local own = 'master_replid:' .. sub(asked.history, 14)
  if meta[4] ~= asked.history or not string.find(call('INFO', 'replication'), own, 1, true) then
    return redis.error_reply('HISTORY')
  end
end
if asked.base and (meta[5] or '') ~= asked.base then return redis.error_reply('BASE ' .. tostring(meta[5])) end
if asked.next and (meta[8] or '') ~= asked.next then return redis.error_reply('NEXT') end
if meta[6] and meta[6] == asked.name then return {} end
local seq, documents, most_candidates = tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[7] or '0')

local time, os = call('TIME'), rawget(_G, 'os')
local began = os and os.clock()
local now = asked.now_ms < 0 and time[1] * 1000 + math.floor(time[2] / 1000) or asked.now_ms

-- For how many microseconds the server is at this call: of its processor where scripts can ask for that (Redis 7.4), else of
-- its clock. 0 where they have neither: in Redis 7.2 TIME stands still during a script.
local function taken()
  if began then return math.floor((os.clock() - began) * 1e6) end
  local ended = call('TIME')
  return (ended[1] - time[1]) * 1e6 + ended[2] - time[2]
end
local oldest_live = asked.max_age_ms >= 0 and now - asked.max_age_ms or -1

-- Functions that many calls need none of: they are made when one of them is first used. To make all takes a call as long as
-- to judge a page.
local when_used = {__index = function(functions, name)
  for each, made in pairs(rawget(functions, 1)()) do functions[each] = made end
  return rawget(functions, name)
end}
local function on_demand(make) return setmetatable({make}, when_used) end
