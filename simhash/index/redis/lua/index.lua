-- An index from inside Redis: one call is one atomic step. It judges a batch of pages, or does what an operator asks.
--
-- Which keys there are, and the bytes of records, is told in layout.py. All keys carry the hash tag of KEYS[1], so that
-- they lie in one slot of a Redis Cluster. Integers are big-endian, scores are decimal text.
--
-- KEYS[1]  {ns}:meta
-- ARGV[1]  the verb: judge, load, take_down, walk, read, rights; each tells its arguments where it stands, below
-- ARGV[2]  the generation that the index must have
--
-- Nothing is written before all that can be refused was looked at: Redis does not take back what a script has written.
-- Every list that goes through the stack (unpack) is bounded, and so is what one page may cost (judge).

local layout = --[[LAYOUT]] nil           -- written here when the script is made: Layout.for_script
local function permutations() return --[[PERMUTATIONS]] nil end   -- of each table: its blocks, as substrings of the bits

local byte, sub, char = string.byte, string.sub, string.char
local bxor = bit.bxor
local pack, unpack_struct, call = struct.pack, struct.unpack, redis.call

local VERB, FIRST = ARGV[1], 3
local NONE = {}                            -- for all who find nothing: not to be added to
local AT_ONCE = 500                        -- values that go through the stack at once; Lua bears some 8,000

-- Bytes of a record: inserted ms 6 | flags 1 | observation 8 | fingerprint | verifier | digest 8 | tail, or behind the
-- observation a tagged digest | tail. A body is a record without the time: what begins at n there, here begins 6 later.
local TIME, OBSERVATION = 6, 8
local FLAGS = TIME + 1
local FINGERPRINT = FLAGS + 1 + OBSERVATION
local FINGERPRINT_BYTES = layout.fingerprint_bytes
local VERIFIER = FINGERPRINT + FINGERPRINT_BYTES
local COMPARED = layout.compared_bytes     -- of the verifier, the bytes before its band keys
local BAND_BYTES, NO_BAND = 4, '\0\0\0\0'
local DIGEST = VERIFIER + layout.verifier_bytes
local DIGEST_BYTES = 17                    -- a tagged digest

-- A whole number in decimal: Lua itself would write large ones with an exponent. Most are asked for again.
local text_of = setmetatable({}, {__index = function(known, number)
  known[number] = string.format('%d', number)   -- also of padded text: '007' is 7
  return known[number]
end})

local function time_of(record) return (unpack_struct('>I6', record)) end
local function has_fingerprint(record) return byte(record, FLAGS) < layout.short end

-- Refusals -------------------------------------------------------------------------------------------------------

-- What the user of this connection must be allowed, each with arguments as it is called with.
local function rights()
  local refused, key = {}, KEYS[1]
  local commands = {{'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HSET', key, 'f', 'v'},
    {'HDEL', key, 'f'}, {'HLEN', key}, {'HKEYS', key}, {'HINCRBY', key, 'f', '1'}, {'EXISTS', key},
    {'HSET', layout.records, 'f', 'v'}, {'HSET', layout.digests, 'f', 'v'}, {'HSET', layout.journals, 'f', 'v'},
    {'HSET', layout.versions, 'f', 'v'}, {'HRANDFIELD', layout.versions, '1'},
    {'ZADD', layout.tombstones, '0', 'm'}, {'ZREM', layout.tombstones, 'm'}, {'ZCOUNT', layout.tombstones, '0', '0'},
    {'TIME'}, {'INFO', 'replication'}}
  for i = 1, #layout.table_keys do commands[#commands + 1] = {'HSET', layout.table_keys[i], 'f', 'v'} end
  for i = 1, #layout.bands do commands[#commands + 1] = {'HSET', layout.bands[i], 'f', 'v'} end
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then refused[#refused + 1] = table.concat(command, ' ', 1, math.min(2, #command)) end
  end
  return refused
end

if VERB == 'rights' then return redis.acl_check_cmd and rights() or NONE end   -- Redis 6.2 cannot say

-- While the slot of a Redis Cluster moves, a key that is not there cannot be told from one that has moved already.
local here = redis.pcall('EXISTS', layout.nothing)
if type(here) == 'table' and here.err then return redis.error_reply('MOVING ' .. here.err) end

local meta = call('HMGET', KEYS[1], 'generation', 'seq', 'documents', 'epoch', 'base', 'pause', 'most_candidates', 'crowded',
  'first', 'archived')
if meta[1] ~= ARGV[2] then return redis.error_reply('GENERATION ' .. tostring(meta[1])) end
local seq, documents, crowded_records = tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[8] or '0')
local first = tonumber(meta[9])              -- no record has a number below it
local archived = tonumber(meta[10] or nil)   -- all up to this number lies in the archive; nil: there is none

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Bits -----------------------------------------------------------------------------------------------------------

-- Permutations are needed here only for matches and removals, so they may be simple: a string of '0' and '1', of
-- which blocks are substrings. A 64-bit number would not fit Lua's doubles.
local NIBBLES = {[0] = '0000', '0001', '0010', '0011', '0100', '0101', '0110', '0111',
  '1000', '1001', '1010', '1011', '1100', '1101', '1110', '1111'}

-- Filled as they are asked: a call needs few of them, and to fill the tables whole takes a millisecond.
local bits_of = setmetatable({}, {__index = function(known, character)
  local value = byte(character)
  known[character] = NIBBLES[(value - value % 16) / 16] .. NIBBLES[value % 16]
  return known[character]
end})

local tables   -- each table's permutation

local function runs_of(i)
  tables = tables or permutations()
  return tables[i]
end

local function to_bits(bytes) return (string.gsub(bytes, '.', bits_of)) end

local function fingerprint_bits(fingerprint) return sub(to_bits(fingerprint), -layout.bits) end

local function reorder(bits, runs)
  local parts = {}
  for i = 1, #runs do parts[i] = sub(bits, runs[i][1], runs[i][2]) end
  return table.concat(parts)
end

local function number_of(bits) return bits == '' and 0 or tonumber(bits, 2) end

-- The bucket that bits begin with.
local function bucket_of(bits) return string.format(layout.bucket_format, number_of(sub(bits, 1, layout.bucket_bits))) end

local ones   -- how many bits of a byte are 1: made when first needed, which costs as much as a tenth of a page

local function numbers_of_ones()
  local counts = {[0] = 0}
  for value = 1, 255 do counts[value] = value % 2 + counts[(value - value % 2) / 2] end
  return counts
end

-- How many bits differ, over the bytes of a and those of b behind `from`; once they are more than `enough`, some number
-- above it.
local function distance(a, b, enough, from)
  local sum = 0
  ones = ones or numbers_of_ones()
  for i = 1, #a, 4 do
    local a1, a2, a3, a4 = byte(a, i, i + 3)
    local b1, b2, b3, b4 = byte(b, from + i, from + i + 3)
    sum = sum + ones[bxor(a1, b1)]
    if a2 then sum = sum + ones[bxor(a2, b2)] end
    if a3 then sum = sum + ones[bxor(a3, b3)] end
    if a4 then sum = sum + ones[bxor(a4, b4)] end
    if sum > enough then return sum end
  end
  return sum
end

-- Numbers --------------------------------------------------------------------------------------------------------
-- A record is called by its number, and lies where that says. In a place a number has 3 to 6 bytes: the first two bits say
-- how many more than 3.

local FORMATS, LEAST_BYTES = {[0] = '>I3', '>I4', '>I5', '>I6'}, 3

local function packed_number(number)
  local more = 0
  while number >= 2 ^ (22 + 8 * more) do more = more + 1 end
  return pack(FORMATS[more], number + more * 2 ^ (22 + 8 * more))
end

-- The number at a byte of a place, and where the next entry begins.
local function number_at(place, at)
  local more = math.floor(byte(place, at) / 64)
  return unpack_struct(FORMATS[more], place, at) - more * 2 ^ (22 + 8 * more), at + LEAST_BYTES + more
end

local function place_of_record(number)
  local within = number % layout.records_per_hash
  return layout.records .. string.format('%x', (number - within) / layout.records_per_hash), text_of[within]
end

local function record_of(number) return call('HGET', place_of_record(number)) end

local function digests_key(digest) return layout.digests .. bucket_of(to_bits(sub(digest, 2, 5))) end

-- Crowds ---------------------------------------------------------------------------------------------------------
-- A place (a prefix of a table, the leading bits of a band key) in which layout.limit records stand takes no more: so the
-- oldest ones are compared, and a page costs no more however many there are. A record that does not stand everywhere is
-- found by its exact copies all the same, by this field in the hash of digests: 'c', fingerprint, digest (8).

local function crowd_key(fingerprint) return layout.digests .. bucket_of(fingerprint_bits(fingerprint)) end

local function crowd_field(record) return 'c' .. sub(record, FINGERPRINT, VERIFIER - 1) .. sub(record, DIGEST, DIGEST + 7) end

-- Tombstones -----------------------------------------------------------------------------------------------------

local gaps = seq - first + 1 - documents   -- numbers from the first on whose record was removed out of turn
local removed = 0                          -- records that this call removes out of turn

-- The record of this number is removed out of turn.
local function leave_gap(number)
  gaps, removed = gaps + 1, removed + 1
  call('ZADD', layout.tombstones, text_of[number], text_of[number])
end

local function write_counters()
  call('HSET', KEYS[1], 'seq', text_of[seq], 'first', text_of[first], 'documents', text_of[documents],
    'crowded', text_of[crowded_records])
  if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
end

-- Places ---------------------------------------------------------------------------------------------------------
-- What a page brings along in `places`: for each table key and field, for each table the rest of the fingerprint, for each
-- band key and field.

local TABLE_COUNT = #layout.prefixes
local RESTS = 2 * TABLE_COUNT              -- before the rests of the tables
local BANDS = 1 + 3 * TABLE_COUNT          -- where the bands begin
local NO_KEY = byte('-')                   -- what the field of a band begins with when there is none

local function places_of(argument, at) return {unpack_struct(layout.places, argument, at)} end

-- Key and field of the page's own place in table i.
local function table_place(places, i) return places[2 * i - 1], text_of[places[2 * i]] end

-- The same of band i; nil: it has no such key.
local function band_place(places, i)
  local at = BANDS + 2 * (i - 1)
  if byte(places[at + 1]) ~= NO_KEY then return places[at], text_of[places[at + 1]] end
end

-- How many entries stand in a place, of which each has `rest` bytes before its number.
local function count_of(place, rest)
  local count, at = 0, 1
  while at <= #place do
    count, at = count + 1, at + rest + LEAST_BYTES + math.floor(byte(place, at + rest) / 64)
  end
  return count
end

-- Whether more than `most` stand in so many bytes of places, at the least that each takes: then it pays to count them.
local function may_hold(bytes, rest, most) return bytes > most * (rest + LEAST_BYTES) end

-- Whether a place takes no more.
local function is_full(place, rest)
  return may_hold(#place, rest, layout.limit - 1) and count_of(place, rest) >= layout.limit
end

-- What stands in all places of a page, tables first, then bands ('': nothing, or no such key).
local function read_places(places)
  local standing = {}
  for i = 1, TABLE_COUNT do standing[i] = call('HGET', table_place(places, i)) or '' end
  for i = 1, #layout.bands do
    local key, field = band_place(places, i)
    standing[TABLE_COUNT + i] = key and call('HGET', key, field) or ''
  end
  return standing
end

-- Storing --------------------------------------------------------------------------------------------------------

local function store_record(body)
  seq, documents = seq + 1, documents + 1
  local record, key, field = pack('>I6', now) .. body, place_of_record(seq)
  call('HSET', key, field, record)
  return record
end

-- Number a page with a fingerprint and store it; it stands behind what is `standing` in each of its places, where there is
-- room.
local function store(places, body, standing)
  local record = store_record(body)
  local number, crowded = packed_number(seq), false
  for i = 1, TABLE_COUNT do
    local key, field = table_place(places, i)
    local rest, place = places[RESTS + i], standing[i]
    if is_full(place, #rest) then crowded = true
    else call('HSET', key, field, place .. rest .. number) end
  end
  for i = 1, #layout.bands do
    local key, field = band_place(places, i)
    local place = standing[TABLE_COUNT + i]
    if is_full(place, 0) then crowded = true
    elseif key then call('HSET', key, field, place .. number) end
  end
  if crowded then
    local fingerprint = sub(record, FINGERPRINT, VERIFIER - 1)
    crowded_records = crowded_records + call('HSET', crowd_key(fingerprint), crowd_field(record), number)
  end
end

-- The same for a page that has a digest only. It takes the place of one that retention had not come to yet.
local function store_digest(key, digest, body)
  store_record(body)
  call('HSET', key, digest, packed_number(seq))
end

-- Removing -------------------------------------------------------------------------------------------------------

-- Take a number out of a place, wherever it stands there.
local function leave(key, field, number, rest)
  local place, at = call('HGET', key, field) or '', 1
  while at <= #place do
    local found, after = number_at(place, at + rest)
    if found == number then
      local left = sub(place, 1, at - 1) .. sub(place, after)
      if left == '' then call('HDEL', key, field) else call('HSET', key, field, left) end
      return
    end
    at = after
  end
end

-- A field of the hash of digests that leads to this number goes; true: it did.
local function unnote(key, field, number)
  local noted = call('HGET', key, field)
  return noted and number_at(noted, 1) == number and call('HDEL', key, field) == 1
end

local function leave_tables(own, number)
  for i = 1, TABLE_COUNT do
    local permuted, prefix = reorder(own, runs_of(i)), layout.prefixes[i]
    local field = text_of[number_of(sub(permuted, layout.bucket_bits + 1, prefix))]
    leave(layout.table_keys[i] .. bucket_of(permuted), field, number, math.max(1, math.ceil((layout.bits - prefix) / 8)))
  end
end

local function leave_bands(record, number)
  for i = 1, #layout.bands do
    local at = VERIFIER + COMPARED + (i - 1) * BAND_BYTES
    local band = sub(record, at, at + BAND_BYTES - 1)
    if band ~= NO_BAND then
      local bits = to_bits(band)
      local field = number_of(sub(bits, layout.bucket_bits + 1, layout.bucket_bits + layout.band_field_bits))
      leave(layout.bands[i] .. bucket_of(bits), text_of[field], number, 0)
    end
  end
end

local function remove(number, record)
  -- First: where memory is full, Redis refuses a script's first write unless it frees some.
  call('HDEL', place_of_record(number))
  documents = documents - 1
  if has_fingerprint(record) then
    local fingerprint = sub(record, FINGERPRINT, VERIFIER - 1)
    leave_tables(fingerprint_bits(fingerprint), number)
    leave_bands(record, number)
    if crowded_records > 0 and unnote(crowd_key(fingerprint), crowd_field(record), number) then
      crowded_records = crowded_records - 1
    end
  else
    local digest = sub(record, FINGERPRINT, FINGERPRINT + DIGEST_BYTES - 1)
    unnote(digests_key(digest), digest, number)
  end
end

-- Retention ------------------------------------------------------------------------------------------------------

local asked = VERB == 'judge' and cjson.decode(ARGV[FIRST]) or {max_age_ms = -1, max_documents = -1}
if asked.now_ms and asked.now_ms >= 0 then now = asked.now_ms end
local oldest_live = asked.max_age_ms >= 0 and now - asked.max_age_ms or -1
local forgotten = 0   -- records that retention has removed in this call

local GAPS_FOR_A_RECORD = 32   -- that are passed over in the time in which one record is removed

-- Whether the oldest record is to be forgotten. Beside an archive nothing is but what lies in it: who fills it goes by age
-- and count.
local function is_over(number, record)
  if archived then return number <= archived end
  return time_of(record) < oldest_live or asked.max_documents >= 0 and documents > asked.max_documents
end

-- Remove what is beyond its age or the count, oldest first, as far as `budget` goes; what is left of that.
local function forget_some(budget)
  if archived then
    if first > archived then return budget end
  elseif oldest_live < 0 and asked.max_documents < 0 then
    return budget
  end
  while budget > 0 and first <= seq do
    local record = record_of(first)
    if record and not is_over(first, record) then return budget end
    if record then
      remove(first, record)
      budget, forgotten = budget - 1, forgotten + 1
    else
      gaps = gaps - 1
      call('ZREM', layout.tombstones, text_of[first])
      budget = budget - 1 / GAPS_FOR_A_RECORD
    end
    first = first + 1
  end
  return budget
end

-- The number of the oldest record that is not too many.
local function oldest_kept()
  local from = seq - gaps - asked.max_documents + 1   -- were no number without a record below it
  local wanted, before = from, nil
  while gaps > 0 and wanted ~= before do
    before = wanted
    wanted = from + call('ZCOUNT', layout.tombstones, '-inf', '(' .. text_of[before])
  end
  return wanted
end

-- What retention has not come to yet is passed over all the same.
local function is_live(number, record)
  if archived then return true end
  if oldest_live >= 0 and time_of(record) < oldest_live then return false end
  if asked.max_documents < 0 or documents <= asked.max_documents then return true end
  return number >= oldest_kept()
end

-- Of each place that is full the oldest record goes if it is forgotten, though its turn has not come: it takes the room of
-- a page that others are to find. What stands in the places then.
local function make_room(places, standing)
  if archived or oldest_live < 0 and asked.max_documents < 0 then return standing end
  local before = documents
  for i, place in ipairs(standing) do
    local rest = i <= TABLE_COUNT and #places[RESTS + i] or 0
    local number = is_full(place, rest) and number_at(place, rest + 1)
    local record = number and record_of(number)
    if record and not is_live(number, record) then
      remove(number, record)
      leave_gap(number)
    end
  end
  return documents < before and read_places(places) or standing
end

-- Judging --------------------------------------------------------------------------------------------------------
-- judge: a batch of pages, in order; those that match nothing are stored.
--
-- ARGV[3]   call: JSON {work, epoch, now_ms, max_age_ms, max_documents (each -1: none), expire_per_page, partitions, base,
--           decided}; each partition [number, journal key, committed offset or -1], those of the pages and some of
--           the others; base: the generation of the base, '': none; decided: numbers of the pages (from 1) that are known from
--           it; versions: whether there are some
-- ARGV[4..] pages: kind 'f' (has a fingerprint) or 'd' (digest only), partition (2 bytes; 0: no journal), offset (6),
--           observation (16), body (behind 2 bytes of length), then
--           'f': for each table key and field; for each table the rest; for each band key and field (dashes: no band)
--           'd': key of its digest.
--           Behind the pages: what the base answers for each of the decided ones, as it would be returned; and if
--           `versions` are asked for, of each page its version, as `exchange` takes it
-- Returns for each page: its observation (16), candidates compared (4 bytes; the highest bit: one of its places was full;
-- the next: there is a version before this one, and it follows behind a byte of length), then 'u' seq |
-- 'd' distance (1 byte) seq record. For the first pages only, at least one, when `work` was used up.

-- The best answer so far for the page at hand.
local own_seq, oldest_seq, oldest_record, oldest_distance
local candidates, considered, met_crowd = 0, 0, false
local FULL = 2 ^ 31

local function head(count) return pack('>I4', count + (met_crowd and FULL or 0)) end

-- What stands in a place.
local function met(key, field) return call('HGET', key, field) or '' end

-- A page was compared with so many of a place, and more stand there, or it takes no more.
local function meet(count, more)
  candidates = candidates + count
  if more or count >= layout.limit then met_crowd = true end
end

local function shares_band(record, body)
  for at = VERIFIER + COMPARED, VERIFIER + layout.verifier_bytes - 1, BAND_BYTES do
    local key = sub(record, at, at + BAND_BYTES - 1)
    if key ~= NO_BAND and key == sub(body, at - TIME, at - TIME + BAND_BYTES - 1) then return true end
  end
  return false
end

-- Pages without a fingerprint have no verifier: their digests are equal, and that is all.
local function verified(page, record)
  if COMPARED == 0 or page.kind ~= 'f' then return true end
  page.verifier = page.verifier or sub(page.body, VERIFIER - TIME, VERIFIER - TIME + COMPARED - 1)
  return distance(page.verifier, record, layout.verifier_reach, VERIFIER - 1) <= layout.verifier_reach
end

local function consider_record(number, record, page_distance, page)
  local at = FLAGS + 1
  if sub(record, at, at + OBSERVATION - 1) == sub(page.body, at - TIME, at - TIME + OBSERVATION - 1) then
    own_seq = number
  elseif (not oldest_seq or number < oldest_seq) and verified(page, record) then
    oldest_seq, oldest_record, oldest_distance = number, record, page_distance
  end
end

-- Look at the record of a number: is it the page's own, is it an older match? `page_distance` is that of the fingerprints;
-- nil: they met in a band's place, which has a key's first bits only.
local function consider(number, page_distance, page)
  if page.seen[number] then return end
  page.seen[number] = true
  considered = considered + 1
  local record = record_of(number)
  if not record or not is_live(number, record) then return end
  if not page_distance then
    if not shares_band(record, page.body) then return end
    page_distance = distance(page.fingerprint, record, layout.reach, FINGERPRINT - 1)
    if page_distance > layout.reach then return end
  end
  consider_record(number, record, page_distance, page)
end

-- Compare with `most` of what stands in a place of table i. `flipped`: 1 where the place's prefix differs from the page's
-- own in one bit.
local function compare(i, place, page, flipped, most)
  local own = page.places[RESTS + i]
  local at, size, count, number = 1, #own, 0, nil
  while at <= #place and count < most do
    -- Pages of one template have one fingerprint: that is seen without counting bits.
    local is_same = sub(place, at, at + size - 1) == own
    local d = flipped + (is_same and 0 or distance(own, place, layout.reach, at - 1))
    if d <= layout.reach then
      number, at = number_at(place, at + size)
      consider(number, d, page)
    else
      at = at + size + LEAST_BYTES + math.floor(byte(place, at + size) / 64)
    end
    count = count + 1
  end
  meet(count, at <= #place)
end

-- What stands in the places whose prefixes differ from the page's own in one bit: of the bucket's bits, then of the field's.
local function neighbours(i, key, field)
  local digits, found = layout.bucket_digits, {}
  local start, bucket = sub(key, 1, -digits - 1), tonumber(sub(key, -digits), 16)
  for nth = 1, layout.bucket_bits do
    local other = string.format(layout.bucket_format, bxor(bucket, 2 ^ (layout.bucket_bits - nth)) % 2 ^ 32)
    found[#found + 1] = call('HGET', start .. other, field) or nil
  end
  local own, others = tonumber(field), {}
  for nth = layout.bucket_bits + 1, layout.prefixes[i] do
    local value = 2 ^ (layout.prefixes[i] - nth)
    others[#others + 1] = text_of[math.floor(own / value) % 2 == 0 and own + value or own - value]
  end
  for _, place in ipairs(#others > 0 and call('HMGET', key, unpack(others)) or {}) do
    found[#found + 1] = place or nil
  end
  return found
end

-- Of places that together hold more than one takes, the oldest of each count.
local function probe_flipped(i, key, field, page)
  local found, rest, bytes, together = neighbours(i, key, field), #page.places[RESTS + i], 0, 0
  for _, place in ipairs(found) do bytes = bytes + #place end
  if may_hold(bytes, rest, layout.limit) then
    for _, place in ipairs(found) do together = together + count_of(place, rest) end
  end
  local most = together > layout.limit and layout.neighbours[i] or layout.limit
  for _, place in ipairs(found) do compare(i, place, page, 1, most) end
end

local function compare_band(place, page)
  local at, count, number = 1, 0, nil
  while at <= #place do
    number, at = number_at(place, at)
    consider(number, nil, page)
    count = count + 1
  end
  meet(count, false)
end

-- An exact copy that does not stand everywhere.
local function look_in_crowd(page)
  local noted = call('HGET', crowd_key(page.fingerprint), crowd_field(string.rep('\0', TIME) .. page.body))
  if noted then consider(number_at(noted, 1), 0, page) end
end

-- What stands in the page's own places is kept for when it is stored.
local function probe(page)
  local places, standing = page.places, page.standing
  for i = 1, TABLE_COUNT do
    local key, field = table_place(places, i)
    standing[i] = met(key, field)
    if standing[i] ~= '' then compare(i, standing[i], page, 0, layout.limit) end
    if own_seq then return end
    if layout.radii[i] > 0 then probe_flipped(i, key, field, page) end
  end
  for i = 1, #layout.bands do
    local key, field = band_place(places, i)
    local place = key and met(key, field) or ''
    standing[TABLE_COUNT + i] = place
    if place ~= '' then compare_band(place, page) end
  end
  if crowded_records > 0 then look_in_crowd(page) end
end

local function verdict()
  if own_seq then return head(candidates) .. 'u' .. pack('>I6', own_seq) end
  if oldest_seq then return head(candidates) .. 'd' .. char(oldest_distance) .. pack('>I6', oldest_seq) .. oldest_record end
end

local function open_places(page)
  page.places = places_of(page.argument, page.at)
  page.fingerprint, page.seen, page.standing = sub(page.body, FINGERPRINT - TIME, VERIFIER - TIME - 1), {}, {}
end

local function judge_fingerprint(page)
  open_places(page)
  probe(page)
  local known = verdict()
  if known then return known end
  store(page.places, page.body, make_room(page.places, page.standing))
  return head(candidates) .. 'u' .. pack('>I6', seq)
end

-- Key and digest of a page without a fingerprint, and the number that stands there.
local function digest_of(argument, at, body)
  local key, digest = sub(argument, at), sub(body, FINGERPRINT - TIME, FINGERPRINT - TIME + DIGEST_BYTES - 1)
  local found = call('HGET', key, digest)
  return key, digest, found and number_at(found, 1)
end

local function consider_copy(number, page)
  local record = number and record_of(number)
  if record and is_live(number, record) then
    candidates = 1
    consider_record(number, record, 0, page)
  end
end

local function judge_digest(page)
  local key, digest, number = digest_of(page.argument, page.at, page.body)
  consider_copy(number, page)
  local known = verdict()
  if known then return known end
  store_digest(key, digest, page.body)
  return head(candidates) .. 'u' .. pack('>I6', seq)
end

-- The base knows the page; but it was stored here, should it have come before the base had its match.
local function judge_decided(page)
  if page.kind == 'f' then
    open_places(page)
    compare(1, met(table_place(page.places, 1)), page, 0, layout.limit)
    if crowded_records > 0 then look_in_crowd(page) end
  else
    local _, _, number = digest_of(page.argument, page.at, page.body)
    consider_copy(number, page)
  end
  return own_seq and head(1) .. 'u' .. pack('>I6', own_seq) or page.decided
end

local function decide(page)
  own_seq, oldest_seq, oldest_record, oldest_distance = nil, nil, nil, nil
  candidates, considered, met_crowd = 0, 0, false
  if page.decided then return judge_decided(page) end
  return (page.kind == 'f' and judge_fingerprint or judge_digest)(page)
end

-- Versions -------------------------------------------------------------------------------------------------------
-- Of a URL its last page, for those who ask: bytes that are the caller's, whose first 4 name the delivery of the page;
-- before them 2 for the day, since 2020.

local DAY, FIRST_DAY, DELIVERY = 86400000, 18262, 4
local SWEEPS = 8   -- of so many new fields one has its bucket swept

local function today() return math.max(0, math.min(65535, math.floor(now / DAY) - FIRST_DAY)) end

local function is_past(version) return (unpack_struct('>I2', version) + 1 + FIRST_DAY) * DAY <= oldest_live end

-- A bucket grows by new URLs: some of these remove from it what is past its age, so it does not grow for ever. Of a bucket
-- that is larger than was thought some fields are looked at, others each time.
local function sweep(key)
  local some, past = call('HRANDFIELD', key, AT_ONCE, 'WITHVALUES'), {}
  for i = 1, #some, 2 do
    if is_past(some[i + 1]) then past[#past + 1] = some[i] end
  end
  if #past > 0 then call('HDEL', key, unpack(past)) end
end

-- Put a version in the place of its URL's last one; that, or '' without one. `argument`: key (behind a byte of length),
-- field (4), version.
local function exchange(argument)
  local key, field, at = unpack_struct('>Bc0c4', argument)
  local before = call('HGET', key, field)
  -- Read again: nobody knows any more what was before it.
  if before and sub(before, 3, 2 + DELIVERY) == sub(argument, at, at + DELIVERY - 1) then return '' end
  local is_new = call('HSET', key, field, pack('>I2', today()) .. sub(argument, at)) == 1
  if is_new and oldest_live >= 0 and byte(field, 4) % SWEEPS == 0 then sweep(key) end
  if not before or oldest_live >= 0 and is_past(before) then return '' end
  return sub(before, 3)
end

local HAS_VERSION = 2 ^ 30

local function with_version(answer, argument)
  local previous = exchange(argument)
  if previous == '' then return answer end
  return pack('>I4', unpack_struct('>I4', answer) + HAS_VERSION) .. char(#previous) .. previous .. sub(answer, 5)
end

-- Journals -------------------------------------------------------------------------------------------------------

local FEW_DECISIONS = 500
local offsets_left = 1000   -- for all journals of a call

local function forget_fields(key, fields)
  for at = 1, #fields, AT_ONCE do call('HDEL', key, unpack(fields, at, math.min(at + AT_ONCE - 1, #fields))) end
end

-- Forget decisions below the mark, from offset `from` on: all of them where there are few; else those of some offsets, and
-- 'trimmed' says where the next call goes on.
local function trim(key, from, mark)
  local fields, upto, size = {}, mark, call('HLEN', key)
  if size <= math.min(FEW_DECISIONS, offsets_left) then
    offsets_left = offsets_left - size
    for _, field in ipairs(call('HKEYS', key)) do
      if #field == 6 and unpack_struct('>I6', field) < mark then fields[#fields + 1] = field end
    end
  else
    upto = math.min(mark, from + offsets_left)
    offsets_left = offsets_left - (upto - from)
    for offset = from, upto - 1 do fields[#fields + 1] = pack('>I6', offset) end
  end
  forget_fields(key, fields)
  return upto < mark and upto or nil
end

local function open_partition(row)
  local key, committed = row[2], row[3]
  local stored = call('HMGET', key, 'mark', 'trimmed')
  local mark, trimmed = tonumber(stored[1] or '-1'), tonumber(stored[2] or nil)
  return {key = key, committed = committed, before = mark, trimmed = trimmed, mark = math.max(mark, committed), pages = {}, undecided = {}}
end

local function move_mark(partition)
  if partition.committed > partition.before then call('HSET', partition.key, 'mark', text_of[partition.committed]) end
  local from = partition.trimmed or math.max(partition.before, 0)
  if partition.trimmed or partition.committed > partition.before then
    local left = trim(partition.key, from, partition.mark)
    if left then
      call('HSET', partition.key, 'trimmed', text_of[left])
    elseif partition.trimmed then
      call('HDEL', partition.key, 'trimmed')
    end
  end
end

-- Sort the pages by partition; an error when one of them is below its partition's mark.
local function sort_pages(numbered, pages)
  for _, page in ipairs(pages) do
    local partition = numbered[page.partition]
    if partition then
      if unpack_struct('>I6', page.offset) < partition.mark then
        return redis.error_reply('STALE ' .. partition.key .. ' ' .. text_of[partition.mark])
      end
      table.insert(partition.pages, page)
    end
  end
end

-- Give the pages that are in the journal the answers that they got. What this call decides is not there yet: of two
-- deliveries of a page in one call, the later one knows the first.
local function read_journal(partition)
  if #partition.pages == 0 then return end
  local fields, firsts = {}, {}
  for i, page in ipairs(partition.pages) do fields[i] = page.offset end
  local found = call('HMGET', partition.key, unpack(fields))
  for i, page in ipairs(partition.pages) do
    local size = #page.observation
    if found[i] and sub(found[i], 1, size) == page.observation then
      page.answer = sub(found[i], size + 1)
    else
      local first = firsts[page.offset]
      if first and first.observation == page.observation then
        page.first = first
      else
        firsts[page.offset] = page
        table.insert(partition.undecided, page)
      end
    end
  end
end

local function write_journal(partition)
  local written = {}
  for _, page in ipairs(partition.undecided) do
    if page.answer then
      written[#written + 1] = page.offset
      written[#written + 1] = page.observation .. page.answer
    end
  end
  if #written > 0 then call('HSET', partition.key, unpack(written)) end
end

-- What takes as long as comparing so many candidates: a page that meets few, or one that is forgotten.
local PAGE_WORK = 20 + 3 * layout.probes
local RECORD_WORK = 3   -- a candidate within reach, whose record is looked at

-- What a caller counts on that is not so any more: the index's epoch and this server's own replication id (epochs.lua), the
-- base; or the index stands still while it is moved to other tables.
local function refusal()
  local own, server = 'master_replid:' .. sub(asked.epoch, 14), call('INFO', 'replication')
  if meta[4] ~= asked.epoch or not (string.find(server, own, 1, true) and string.find(server, 'role:master', 1, true)) then
    return redis.error_reply('EPOCH')
  end
  if (meta[5] or '') ~= asked.base then return redis.error_reply('BASE ' .. tostring(meta[5])) end
  if meta[6] and tonumber(meta[6]) > tonumber(time[1]) then return redis.error_reply('PAUSE') end
end

local function judge()
  local refused = refusal()
  if refused then return refused end
  local pages, partitions, numbered, answers = {}, {}, {}, {}
  local last_page = #ARGV - #asked.decided
  if asked.versions then last_page = FIRST + (last_page - FIRST) / 2 end
  local last_decided = last_page + #asked.decided
  for n = FIRST + 1, last_page do
    local kind, partition, offset, observation, body, at = unpack_struct('>c1I2c6c16I2c0', ARGV[n])
    -- With all that it will ever have: a table that grows field by field is laid out anew each time.
    pages[n - FIRST] = {argument = ARGV[n], kind = kind, partition = partition, offset = offset, observation = observation,
      body = body, at = at, places = nil, fingerprint = nil, seen = nil, standing = nil, verifier = nil, decided = nil, first = nil,
      answer = nil}
  end
  for i, number in ipairs(asked.decided) do pages[number].decided = ARGV[last_page + i] end
  for i, row in ipairs(asked.partitions) do
    partitions[i] = open_partition(row)
    numbered[row[1]] = partitions[i]
  end
  local stale = sort_pages(numbered, pages)
  -- A page's share of what is to be forgotten goes before it is stored, see `remove`; what is left of that, behind it.
  local left = (stale or #pages == 0) and 0 or forget_some(asked.expire_per_page)
  for _, partition in ipairs(partitions) do move_mark(partition) end
  if stale then return stale end
  for _, partition in ipairs(partitions) do read_journal(partition) end
  local work, most = PAGE_WORK * forgotten, 0
  for i, page in ipairs(pages) do
    local before = forgotten
    if i > 1 then left = forget_some(asked.expire_per_page) end
    candidates, considered = 0, 0
    page.answer = page.answer or page.first and page.first.answer
    if not page.answer then
      page.answer = decide(page)
      if asked.versions then page.answer = with_version(page.answer, ARGV[last_decided + i]) end
    end
    answers[i] = page.observation .. page.answer
    forget_some(left)
    work = work + PAGE_WORK * (1 + forgotten - before) + candidates + RECORD_WORK * considered
    most = math.max(most, candidates)
    if work > asked.work then break end
  end
  for _, partition in ipairs(partitions) do write_journal(partition) end
  write_counters()
  if most > tonumber(meta[7] or '0') then call('HSET', KEYS[1], 'most_candidates', text_of[most]) end
  return answers
end

-- Operators ------------------------------------------------------------------------------------------------------

-- load: store records as they were in another index, without judging them, in rising order of seq.
--
-- ARGV[3]    the call's name, which no other has: a driver whose connection broke makes it once more
-- ARGV[4]    the replication id of the server that the caller knows what is stored on; '': of any
-- ARGV[5..]  'g' and a count (6): so many numbers whose records are gone; or 'r', seq (6), insertion time (6) and the page
--            as for judge
-- Returns the last seq.
local function load_record(argument)
  local wanted, inserted, kind, _, _, _, body, at = unpack_struct('>I6I6c1I2c6c16I2c0', argument, 2)
  if wanted ~= seq + 1 then return redis.error_reply('ORDER ' .. text_of[seq] .. ' ' .. text_of[wanted]) end
  now = inserted
  if kind == 'f' then
    local places = places_of(argument, at)
    store(places, body, read_places(places))
  else
    local key, digest = digest_of(argument, at, body)
    store_digest(key, digest, body)
  end
end

local function load()
  local server = ARGV[FIRST + 1]
  if not string.find(call('INFO', 'replication'), 'master_replid:' .. server, 1, true) then return redis.error_reply('EPOCH') end
  if call('HGET', KEYS[1], 'loaded') == ARGV[FIRST] then return text_of[seq] end
  local failed
  for n = FIRST + 2, #ARGV do
    if sub(ARGV[n], 1, 1) == 'g' then
      for _ = 1, (unpack_struct('>I6', ARGV[n], 2)) do
        seq = seq + 1
        leave_gap(seq)
      end
    else
      failed = load_record(ARGV[n])
    end
    if failed then break end
  end
  write_counters()
  if not failed then call('HSET', KEYS[1], 'loaded', ARGV[FIRST]) end
  return failed or text_of[seq]
end

-- take_down: remove records out of turn, each from all its places.
--
-- ARGV[3..]  the number of each, in decimal
-- Returns for each 1, or 0 when it is not there any more.
local function take_down()
  local done = {}
  for n = FIRST, #ARGV do
    local number = tonumber(ARGV[n])
    local record = number >= first and record_of(number)
    if record then
      remove(number, record)
      leave_gap(number)
    end
    done[#done + 1] = record and 1 or 0
  end
  write_counters()
  return done
end

-- walk: records in the order of their numbers, as they are at one moment.
--
-- ARGV[3]  the number to begin at; the first when that is later
-- ARGV[4]  how many numbers at most
-- Returns documents, seq, number of records ever removed out of turn, the first number, the one begun at; then for each
-- number its record ('': there is none).
local function walk()
  local from = math.max(tonumber(ARGV[FIRST]), first)
  local rows = {text_of[documents], text_of[seq], call('HGET', KEYS[1], 'removed') or '0', text_of[first], text_of[from]}
  for number = from, math.min(seq, from + tonumber(ARGV[FIRST + 1]) - 1) do rows[#rows + 1] = record_of(number) or '' end
  return rows
end

-- read: many small reads in one call: to ask for each by a command of its own takes a client ten times as long.
--
-- ARGV[3]   a command of two arguments, such as a key and a member
-- ARGV[4..] the two of each
-- Returns the command's answer for each.
local function read()
  local answers = {}
  for n = FIRST + 1, #ARGV, 2 do answers[(n - FIRST + 1) / 2] = call(ARGV[FIRST], ARGV[n], ARGV[n + 1]) end
  return answers
end

return ({judge = judge, load = load, take_down = take_down, walk = walk, read = read})[VERB]()
