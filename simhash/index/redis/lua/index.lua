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

local OBSERVATION, BODY = 8, 13            -- bytes of an observation in a record; where a record's body starts
local VERIFIER = BODY + OBSERVATION        -- where a record's verifier starts
local COMPARED = layout.compared_bytes     -- of the verifier, the bytes before its band keys
local BAND_BYTES, NO_BAND = 4, '\0\0\0\0'
local DIGEST_BYTES = 17                    -- a tagged digest: the name of a page that has no fingerprint
local SEQ_BYTES = 6

-- A whole number in decimal: Lua itself would write large ones with an exponent.
local function text_of(number) return string.format('%.0f', number) end

local function seq_of(record) return (unpack_struct('>I6', record)) end
local function time_of(record) return (unpack_struct('>I6', record, 7)) end

-- Refusals -------------------------------------------------------------------------------------------------------

-- What the user of this connection must be allowed, each with arguments as it is called with.
local function rights()
  local refused, key = {}, KEYS[1]
  local commands = {{'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HSET', key, 'f', 'v'}, {'HSETNX', key, 'f', 'v'},
    {'HDEL', key, 'f'}, {'HLEN', key}, {'HKEYS', key}, {'HINCRBY', key, 'f', '1'}, {'EXISTS', key},
    {'ZADD', layout.table_keys[1], '0', 'm'}, {'ZREM', layout.table_keys[1], 'm'},
    {'ZCOUNT', layout.table_keys[1], '0', '0'}, {'ZRANGEBYSCORE', layout.table_keys[1], '0', '0'},
    {'ZSCORE', layout.table_keys[1], 'm'}, {'HSTRLEN', layout.records, 'f'},
    {'HSET', layout.records, 'f', 'v'}, {'HSET', layout.digests, 'f', 'v'}, {'ZADD', layout.tombstones, '0', 'm'},
    {'HSET', layout.journals, 'f', 'v'}, {'RPUSH', layout.log, 'v'}, {'LPOP', layout.log}, {'LLEN', layout.log},
    {'LINDEX', layout.log, '0'}, {'LRANGE', layout.log, '0', '0'}, {'TIME'}, {'INFO', 'replication'}}
  for i = 2, #layout.table_keys do commands[#commands + 1] = {'ZADD', layout.table_keys[i], '0', 'm'} end
  for i = 1, #layout.bands do commands[#commands + 1] = {'ZADD', layout.bands[i], '0', 'm'} end
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
  'archived')
if meta[1] ~= ARGV[2] then return redis.error_reply('GENERATION ' .. tostring(meta[1])) end
local seq, documents, crowded_records = tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[8] or '0')
local archived = tonumber(meta[9] or nil)   -- all up to this number lies in the archive; nil: there is none

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

local byte_of = setmetatable({}, {__index = function(known, text)
  known[text] = char(tonumber(text, 2))
  return known[text]
end})

local tables   -- each table's permutation

local function runs_of(i)
  tables = tables or permutations()
  return tables[i]
end

local function to_bits(bytes) return (string.gsub(bytes, '.', bits_of)) end

local function to_bytes(bits) return (string.gsub(string.rep('0', -#bits % 8) .. bits, '........', byte_of)) end

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

-- Names ----------------------------------------------------------------------------------------------------------
-- A record's name is its tagged digest where it has no fingerprint; else its fingerprint, behind which stands its seq where
-- that name was taken or the record does not stand everywhere. Under its name lies its record, its members end with what
-- stands behind the fingerprint, and the log has the name.

local function has_fingerprint(name) return #name ~= DIGEST_BYTES end
local function fingerprint_of(name) return sub(name, 1, layout.fingerprint_bytes) end
local function suffix_of(name) return sub(name, layout.fingerprint_bytes + 1) end

local records_keys = {}   -- by the first bytes, which have the at most 32 bits that choose the bucket

local function records_key(fingerprint)
  local start = sub(fingerprint, 1, 5)
  local key = records_keys[start]
  if not key then
    key = layout.records .. bucket_of(fingerprint_bits(fingerprint))
    records_keys[start] = key
  end
  return key
end

local function digests_key(digest) return layout.digests .. bucket_of(to_bits(sub(digest, 2, 5))) end

local function key_of(name)
  return has_fingerprint(name) and records_key(fingerprint_of(name)) or digests_key(name)
end

-- Crowds ---------------------------------------------------------------------------------------------------------
-- A place (a prefix of a table, the leading bits of a band key) in which layout.limit records stand takes no more: so the
-- oldest ones are compared, and a page costs no more however many there are. A record that does not stand everywhere is
-- found by its exact copies all the same, by this field in the hash of digests: 'c', fingerprint, digest (8); its value is
-- the record's seq (6), and for each table and band '1' where it stands, '0' where it does not.

local function crowd_key(fingerprint) return layout.digests .. bucket_of(fingerprint_bits(fingerprint)) end

-- `data`: a body, or a record from BODY on
local function crowd_field(fingerprint, body)
  local at = OBSERVATION + layout.verifier_bytes
  return 'c' .. fingerprint .. sub(body, at + 1, at + 8)
end

local function is_full(key, score) return call('ZCOUNT', key, score, score) >= layout.limit end

-- The log --------------------------------------------------------------------------------------------------------
-- Its last entry is that of the last seq given, and none is missing: the first one's seq follows from its length.

local gaps = call('LLEN', layout.log) - documents   -- entries of the log whose record was removed out of turn
local removed = 0                                   -- records that this call removes out of turn
local unwritten = {}

local function write_log()
  for at = 1, #unwritten, AT_ONCE do call('RPUSH', layout.log, unpack(unwritten, at, math.min(at + AT_ONCE - 1, #unwritten))) end
  unwritten = {}
end

-- The entry of this number stays in the log, and its record is removed out of turn.
local function leave_gap(number)
  gaps, removed = gaps + 1, removed + 1
  call('ZADD', layout.tombstones, text_of(number), text_of(number))
end

local function write_counters()
  write_log()
  call('HSET', KEYS[1], 'seq', text_of(seq), 'documents', text_of(documents), 'crowded', text_of(crowded_records))
  if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
end

-- Storing --------------------------------------------------------------------------------------------------------
-- What a page brings along in `places`: its fingerprint, the key of its records, then for each table key and score, for each
-- table the member, for each band key and score.

local RECORDS, TABLES = 2, 3
local MEMBERS = 2 + 2 * #layout.prefixes
local BANDS = 3 + 3 * #layout.prefixes
local NO_KEY = byte('-')   -- what the score of a band begins with when there is none

local function places_of(argument, at) return {unpack_struct(layout.places, argument, at)} end

-- The places that take no more, by number: tables first, then bands.
local function full_places(places)
  local full = {}
  for i = 1, #layout.prefixes do
    local at = TABLES + 2 * (i - 1)
    if is_full(places[at], places[at + 1]) then full[i] = true end
  end
  for i = 1, #layout.bands do
    local at = BANDS + 2 * (i - 1)
    if byte(places[at + 1]) ~= NO_KEY and is_full(places[at], places[at + 1]) then full[#layout.prefixes + i] = true end
  end
  return full
end

-- Put the members of a record where there is room; false, and none is there, when one of them is another record's, which
-- has the same rest behind another score: a sorted set has each member once.
local function add_members(places, suffix, full)
  for i = 1, #layout.prefixes do
    local at = TABLES + 2 * (i - 1)
    if not full[i] and call('ZADD', places[at], 'NX', places[at + 1], places[MEMBERS + i] .. suffix) == 0 then
      for n = 1, i - 1 do call('ZREM', places[TABLES + 2 * (n - 1)], places[MEMBERS + n] .. suffix) end
      return false
    end
  end
  for i = 1, #layout.bands do
    local at = BANDS + 2 * (i - 1)
    if not full[#layout.prefixes + i] and byte(places[at + 1]) ~= NO_KEY then
      call('ZADD', places[at], places[at + 1], places[1] .. suffix)
    end
  end
  return true
end

local function note_crowded(places, body, full)
  local stands = {}
  for i = 1, #layout.prefixes + #layout.bands do stands[i] = full[i] and '0' or '1' end
  local noted = pack('>I6', seq) .. table.concat(stands)
  -- None is added where the same text has the field: a page that is over, which retention has not come to yet.
  crowded_records = crowded_records + call('HSET', crowd_key(places[1]), crowd_field(places[1], body), noted)
end

local function number_record(body)
  seq, documents = seq + 1, documents + 1
  return pack('>I6I6', seq, now) .. body
end

-- Number a page with a fingerprint and store it.
local function store(places, body, full)
  local record, suffix = number_record(body), next(full) and pack('>I6', seq) or ''
  if suffix == '' then
    if call('HSETNX', places[RECORDS], places[1], record) == 0 then
      suffix = pack('>I6', seq)
    elseif not add_members(places, '', full) then
      call('HDEL', places[RECORDS], places[1])
      suffix = pack('>I6', seq)
    end
  else
    note_crowded(places, body, full)
  end
  if suffix ~= '' then
    call('HSET', places[RECORDS], places[1] .. suffix, record)
    add_members(places, suffix, full)
  end
  unwritten[#unwritten + 1] = places[1] .. suffix
end

-- The same for a page that has a digest only. `over`: the record whose place it takes, which retention had not come to yet.
local function store_digest(key, digest, body, over)
  if over then
    documents = documents - 1
    leave_gap(seq_of(over))
  end
  call('HSET', key, digest, number_record(body))
  unwritten[#unwritten + 1] = digest
end

-- Removing -------------------------------------------------------------------------------------------------------

-- What a name of the log stands for: its record is nil when it was removed out of turn.
local function entry_of(name, number)
  local entry = {name = name, seq = number, key = name ~= '' and key_of(name)}
  local record = name ~= '' and call('HGET', entry.key, name)
  if record and seq_of(record) == number then entry.record = record end
  return entry
end

local function remove_members(entry)
  local fingerprint, suffix = fingerprint_of(entry.name), suffix_of(entry.name)
  local own = fingerprint_bits(fingerprint)
  for i = 1, #layout.prefixes do
    local permuted = reorder(own, runs_of(i))
    local member = to_bytes(sub(permuted, layout.prefixes[i] + 1))
    call('ZREM', layout.table_keys[i] .. bucket_of(permuted), (member == '' and '\0' or member) .. suffix)
  end
  for i = 1, #layout.bands do
    local at = VERIFIER + COMPARED + (i - 1) * BAND_BYTES
    local band = sub(entry.record, at, at + BAND_BYTES - 1)
    if band ~= NO_BAND then call('ZREM', layout.bands[i] .. bucket_of(to_bits(band)), entry.name) end
  end
  if suffix ~= '' and crowded_records > 0 then
    local key, field = crowd_key(fingerprint), crowd_field(fingerprint, sub(entry.record, BODY))
    local noted = call('HGET', key, field)
    if noted and seq_of(noted) == entry.seq then
      call('HDEL', key, field)
      crowded_records = crowded_records - 1
    end
  end
end

local function remove(entry)
  documents = documents - 1
  if has_fingerprint(entry.name) then remove_members(entry) end
  call('HDEL', entry.key, entry.name)
end

-- Retention ------------------------------------------------------------------------------------------------------

local asked = VERB == 'judge' and cjson.decode(ARGV[FIRST]) or {max_age_ms = -1, max_documents = -1}
if asked.now_ms and asked.now_ms >= 0 then now = asked.now_ms end
local oldest_live = asked.max_age_ms >= 0 and now - asked.max_age_ms or -1
local forgotten = 0   -- records that retention has removed in this call

local GAPS_FOR_A_RECORD = 32   -- of the log that are passed over in the time in which one record is removed

-- Whether the oldest record is to be forgotten. Beside an archive nothing is but what lies in it: who fills it goes by age
-- and count.
local function is_over(record)
  if archived then return seq_of(record) <= archived end
  return time_of(record) < oldest_live or asked.max_documents >= 0 and documents > asked.max_documents
end

-- Remove what is beyond its age or the count, oldest first, as far as `budget` goes.
local function forget_some(budget)
  if archived then
    if seq - call('LLEN', layout.log) - #unwritten >= archived then return end   -- the first number is above it
  elseif oldest_live < 0 and asked.max_documents < 0 then
    return
  end
  write_log()
  while budget > 0 do
    local name = call('LINDEX', layout.log, 0)
    local entry = name and entry_of(name, seq - call('LLEN', layout.log) + 1)
    if not entry or entry.record and not is_over(entry.record) then return end
    call('LPOP', layout.log)
    if entry.record then
      remove(entry)
      budget, forgotten = budget - 1, forgotten + 1
    else
      gaps = gaps - 1
      call('ZREM', layout.tombstones, text_of(entry.seq))
      budget = budget - 1 / GAPS_FOR_A_RECORD
    end
  end
end

-- The number of the oldest record that is not too many.
local function oldest_kept()
  local from = seq - gaps - asked.max_documents + 1   -- were no number without a record below it
  local wanted, before = from, nil
  while gaps > 0 and wanted ~= before do
    before = wanted
    wanted = from + call('ZCOUNT', layout.tombstones, '-inf', '(' .. text_of(before))
  end
  return wanted
end

-- What retention has not come to yet is passed over all the same.
local function is_live(record)
  if archived then return true end
  if oldest_live >= 0 and time_of(record) < oldest_live then return false end
  if asked.max_documents < 0 or documents <= asked.max_documents then return true end
  return seq_of(record) >= oldest_kept()
end

-- Judging --------------------------------------------------------------------------------------------------------
-- judge: a batch of pages, in order; those that match nothing are stored.
--
-- ARGV[3]   call: JSON {work, epoch, now_ms, max_age_ms, max_documents (each -1: none), expire_per_page, partitions, base,
--           decided}; each partition [journal key, committed offset or -1]; base: the generation of the base, '': none;
--           decided: numbers of the pages (from 1) that are known from it
-- ARGV[4..] pages: kind 'f' (has a fingerprint) or 'd' (digest only), partition (2 bytes; 0: no journal), offset (6),
--           observation (16), body (behind 2 bytes of length), then
--           'f': fingerprint; key of its records; for each table key and score; for each table the member; for each
--                band key and score (dashes: no band)
--           'd': tagged digest (17), key of its record.
--           Behind the pages: what the base answers for each of the decided ones, as it would be returned
-- A record is: seq (6), insertion time in ms (6), body.
-- Returns for each page: its observation (16), candidates compared (4 bytes; the highest bit: one of its places was full),
-- then 'u' seq | 'd' distance (1 byte) record. For the first pages only, at least one, when `work` was used up.

-- The best answer so far for the page at hand.
local own_seq, oldest_seq, oldest_record, oldest_distance
local candidates, considered, met_crowd = 0, 0, false
local FULL = 2 ^ 31

local function head(count) return pack('>I4', count + (met_crowd and FULL or 0)) end

-- The members that stand in a place. Most places have none, and to count them costs a third less than to list them.
local function met(key, score, full, number)
  local count = call('ZCOUNT', key, score, score)
  if count == 0 then return NONE end
  candidates = candidates + count
  if number and count >= layout.limit then full[number], met_crowd = true, true end
  return call('ZRANGEBYSCORE', key, score, score)
end

local function shares_band(record, body)
  for at = COMPARED, layout.verifier_bytes - 1, BAND_BYTES do
    local key = sub(body, OBSERVATION + at + 1, OBSERVATION + at + BAND_BYTES)
    if key ~= NO_BAND and key == sub(record, VERIFIER + at, VERIFIER + at + BAND_BYTES - 1) then return true end
  end
  return false
end

-- Pages without a fingerprint have no verifier: their digests are equal, and that is all.
local function verified(page, record)
  if COMPARED == 0 or page.kind ~= 'f' then return true end
  page.verifier = page.verifier or sub(page.body, OBSERVATION + 1, OBSERVATION + COMPARED)
  return distance(page.verifier, record, layout.verifier_reach, VERIFIER - 1) <= layout.verifier_reach
end

local function consider_record(record, page_distance, page)
  if sub(record, BODY, BODY + OBSERVATION - 1) == sub(page.body, 1, OBSERVATION) then
    own_seq = seq_of(record)
  elseif (not oldest_seq or seq_of(record) < oldest_seq) and verified(page, record) then
    oldest_seq, oldest_record, oldest_distance = seq_of(record), record, page_distance
  end
end

-- Look at a record: is it the page's own, is it an older match? Where they met in a band's place only, they must share a
-- band key: a place has its first bits.
local function consider(name, key, page_distance, page, in_band)
  page.seen[name] = true
  considered = considered + 1
  local record = call('HGET', key, name)
  if record and is_live(record) and (not in_band or shares_band(record, page.body)) then
    consider_record(record, page_distance, page)
  end
end

local sources = {}   -- of each table: for each of the permuted bits, behind the lead, the byte and the bit that it came from

local function sources_of(i)
  if not sources[i] then
    local found = {}
    for _, run in ipairs(runs_of(i)) do
      for bit = run[1], run[2] do
        local at = bit - 1 + 8 * layout.fingerprint_bytes - layout.bits
        found[#found + 1] = {1 + math.floor(at / 8), 2 ^ (7 - at % 8)}
      end
    end
    sources[i] = found
  end
  return sources[i]
end

-- The fingerprint that differs from the page's where a member of table i differs from the page's own, and in the bit
-- `flipped` of the lead.
local function restored(i, member, page, flipped)
  local own, from = page.places[MEMBERS + i], sources_of(i)
  local bytes, last = {byte(page.fingerprint, 1, -1)}, layout.bits
  if flipped then bytes[from[flipped][1]] = bxor(bytes[from[flipped][1]], from[flipped][2]) end
  for n = #own, 1, -1 do
    local differing = bxor(byte(own, n), byte(member, n))
    for at = last, last - 7, -1 do
      if differing == 0 then break end
      if differing % 2 == 1 then bytes[from[at][1]] = bxor(bytes[from[at][1]], from[at][2]) end
      differing = (differing - differing % 2) / 2
    end
    last = last - 8
  end
  return char(unpack(bytes))
end

-- Compare with the members found in table i. `flipped`: the one bit of the prefix (from 1) in which they differ from the
-- page; nil: none.
local function compare(i, found, page, flipped)
  local own = page.places[MEMBERS + i]
  local size = #own
  for n = 1, #found do
    local member = found[n]
    local suffix, d = #member > size and sub(member, size + 1) or '', flipped and 1 or 0
    if suffix == '' and member ~= own or sub(member, 1, size) ~= own then d = d + distance(own, member, layout.reach, 0) end
    if d > layout.reach then
      -- a stranger
    elseif d == 0 then
      local name = page.fingerprint .. suffix
      if not page.seen[name] then consider(name, page.places[RECORDS], 0, page) end
    else
      local fingerprint = restored(i, member, page, flipped)
      local name = fingerprint .. suffix
      if not page.seen[name] then consider(name, records_key(fingerprint), d, page) end
    end
  end
end

-- Prefixes that differ from the page's own in one bit: of the bucket's bits, then of the score's.
local function probe_flipped(i, key, score, page)
  local digits = layout.bucket_digits
  local start, bucket = sub(key, 1, -digits - 1), tonumber(sub(key, -digits), 16)
  for nth = 1, layout.bucket_bits do
    local other = string.format(layout.bucket_format, bxor(bucket, 2 ^ (layout.bucket_bits - nth)) % 2 ^ 32)
    compare(i, met(start .. other, score), page, nth)
  end
  local own = tonumber(score)
  for nth = layout.bucket_bits + 1, layout.prefixes[i] do
    local value = 2 ^ (layout.prefixes[i] - nth)
    local other = math.floor(own / value) % 2 == 0 and own + value or own - value
    compare(i, met(key, text_of(other)), page, nth)
  end
end

-- Members of a band are names outright.
local function compare_band(found, page)
  for n = 1, #found do
    local name = found[n]
    if not page.seen[name] then
      local d = distance(page.fingerprint, name, layout.reach, 0)
      if d <= layout.reach then consider(name, records_key(fingerprint_of(name)), d, page, true) end
    end
  end
end

-- An exact copy that does not stand everywhere.
local function look_in_crowd(page)
  local noted = call('HGET', crowd_key(page.fingerprint), crowd_field(page.fingerprint, page.body))
  local name = noted and page.fingerprint .. sub(noted, 1, SEQ_BYTES)
  if name and not page.seen[name] then consider(name, page.places[RECORDS], 0, page) end
end

local function probe(page)
  local places, full = page.places, page.full
  for i = 1, #layout.prefixes do
    local key, score = places[TABLES + 2 * (i - 1)], places[TABLES + 2 * (i - 1) + 1]
    local found = met(key, score, full, i)
    if #found > 0 then compare(i, found, page) end
    if own_seq then return end
    if layout.radii[i] > 0 then probe_flipped(i, key, score, page) end
  end
  for i = 1, #layout.bands do
    local at = BANDS + 2 * (i - 1)
    if byte(places[at + 1]) ~= NO_KEY then
      local found = met(places[at], places[at + 1], full, #layout.prefixes + i)
      if #found > 0 then compare_band(found, page) end
    end
  end
  if crowded_records > 0 then look_in_crowd(page) end
end

local function verdict()
  if own_seq then return head(candidates) .. 'u' .. pack('>I6', own_seq) end
  if oldest_seq then return head(candidates) .. 'd' .. char(oldest_distance) .. oldest_record end
end

local function open_places(page)
  page.places = places_of(page.argument, page.at)
  page.fingerprint, page.seen, page.full = page.places[1], {}, {}
end

local function judge_fingerprint(page)
  open_places(page)
  probe(page)
  local known = verdict()
  if known then return known end
  store(page.places, page.body, page.full)
  return head(candidates) .. 'u' .. pack('>I6', seq)
end

local function judge_digest(page)
  local digest, key = sub(page.argument, page.at, page.at + DIGEST_BYTES - 1), sub(page.argument, page.at + DIGEST_BYTES)
  local record = call('HGET', key, digest)
  if record and is_live(record) then
    candidates = 1
    consider_record(record, 0, page)
  end
  local known = verdict()
  if known then return known end
  store_digest(key, digest, page.body, record)
  return head(candidates) .. 'u' .. pack('>I6', seq)
end

-- The base knows the page; but it was stored here, should it have come before the base had its match.
local function judge_decided(page)
  if page.kind == 'f' then
    open_places(page)
    compare(1, met(page.places[TABLES], page.places[TABLES + 1]), page)
    if crowded_records > 0 then look_in_crowd(page) end
  else
    local record = call('HGET', sub(page.argument, page.at + DIGEST_BYTES), sub(page.argument, page.at, page.at + DIGEST_BYTES - 1))
    if record and is_live(record) then consider_record(record, 0, page) end
  end
  return own_seq and head(1) .. 'u' .. pack('>I6', own_seq) or page.decided
end

local function decide(page)
  own_seq, oldest_seq, oldest_record, oldest_distance = nil, nil, nil, nil
  candidates, considered, met_crowd = 0, 0, false
  if page.decided then return judge_decided(page) end
  return (page.kind == 'f' and judge_fingerprint or judge_digest)(page)
end

-- Journals -------------------------------------------------------------------------------------------------------

local FEW_DECISIONS, OFFSETS_PER_CALL = 500, 1000

local function forget_fields(key, fields)
  for at = 1, #fields, AT_ONCE do call('HDEL', key, unpack(fields, at, math.min(at + AT_ONCE - 1, #fields))) end
end

-- Forget decisions below the mark, from offset `from` on: all of them where there are few; else those of some offsets, and
-- 'trimmed' says where the next call goes on.
local function trim(key, from, mark)
  local fields, upto = {}, mark
  if call('HLEN', key) <= FEW_DECISIONS then
    for _, field in ipairs(call('HKEYS', key)) do
      if #field == 6 and unpack_struct('>I6', field) < mark then fields[#fields + 1] = field end
    end
  else
    upto = math.min(mark, from + OFFSETS_PER_CALL)
    for offset = from, upto - 1 do fields[#fields + 1] = pack('>I6', offset) end
  end
  forget_fields(key, fields)
  return upto < mark and upto or nil
end

local function open_partition(row)
  local key, committed = row[1], row[2]
  local stored = call('HMGET', key, 'mark', 'trimmed')
  local mark, trimmed = tonumber(stored[1] or '-1'), tonumber(stored[2] or nil)
  return {key = key, committed = committed, before = mark, trimmed = trimmed, mark = math.max(mark, committed), pages = {}, undecided = {}}
end

local function move_mark(partition)
  if partition.committed > partition.before then call('HSET', partition.key, 'mark', text_of(partition.committed)) end
  local from = partition.trimmed or math.max(partition.before, 0)
  if partition.trimmed or partition.committed > partition.before then
    local left = trim(partition.key, from, partition.mark)
    if left then
      call('HSET', partition.key, 'trimmed', text_of(left))
    elseif partition.trimmed then
      call('HDEL', partition.key, 'trimmed')
    end
  end
end

-- Sort the pages by partition; an error when one of them is below its partition's mark.
local function sort_pages(partitions, pages)
  for _, page in ipairs(pages) do
    local partition = partitions[page.partition]
    if partition then
      if unpack_struct('>I6', page.offset) < partition.mark then
        return redis.error_reply('STALE ' .. partition.key .. ' ' .. text_of(partition.mark))
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
  local own = 'master_replid:' .. sub(asked.epoch, 14)
  if meta[4] ~= asked.epoch or not string.find(call('INFO', 'replication'), own, 1, true) then
    return redis.error_reply('EPOCH')
  end
  if (meta[5] or '') ~= asked.base then return redis.error_reply('BASE ' .. tostring(meta[5])) end
  if meta[6] and tonumber(meta[6]) > tonumber(time[1]) then return redis.error_reply('PAUSE') end
end

local function judge()
  local refused = refusal()
  if refused then return refused end
  local pages, partitions, answers = {}, {}, {}
  local last_page = #ARGV - #asked.decided
  for n = FIRST + 1, last_page do
    local kind, partition, offset, observation, body, at = unpack_struct('>c1I2c6c16I2c0', ARGV[n])
    -- With all that it will ever have: a table that grows field by field is laid out anew each time.
    pages[n - FIRST] = {argument = ARGV[n], kind = kind, partition = partition, offset = offset, observation = observation,
      body = body, at = at, places = nil, fingerprint = nil, seen = nil, full = nil, verifier = nil, decided = nil, first = nil,
      answer = nil}
  end
  for i, number in ipairs(asked.decided) do pages[number].decided = ARGV[last_page + i] end
  for i, row in ipairs(asked.partitions) do partitions[i] = open_partition(row) end
  local stale = sort_pages(partitions, pages)
  for _, partition in ipairs(partitions) do move_mark(partition) end
  if stale then return stale end
  for _, partition in ipairs(partitions) do read_journal(partition) end
  local work, most = 0, 0
  for i, page in ipairs(pages) do
    local before = forgotten
    candidates, considered = 0, 0
    page.answer = page.answer or page.first and page.first.answer or decide(page)
    answers[i] = page.observation .. page.answer
    forget_some(asked.expire_per_page)
    work = work + PAGE_WORK * (1 + forgotten - before) + candidates + RECORD_WORK * considered
    most = math.max(most, candidates)
    if work > asked.work then break end
  end
  for _, partition in ipairs(partitions) do write_journal(partition) end
  write_counters()
  if most > tonumber(meta[7] or '0') then call('HSET', KEYS[1], 'most_candidates', text_of(most)) end
  return answers
end

-- Operators ------------------------------------------------------------------------------------------------------

-- load: store records as they were in another index, without judging them, in rising order of seq.
--
-- ARGV[3..]  'g' and a count (6): so many numbers whose records are gone; or 'r', seq (6), insertion time (6) and the page
--            as for judge
-- Returns the last seq.
local function load_record(argument)
  local wanted, inserted, kind, _, _, _, body, at = unpack_struct('>I6I6c1I2c6c16I2c0', argument, 2)
  if wanted ~= seq + 1 then return redis.error_reply('ORDER ' .. text_of(seq) .. ' ' .. text_of(wanted)) end
  now = inserted
  if kind == 'f' then
    local places = places_of(argument, at)
    store(places, body, full_places(places))
  else
    local digest, key = sub(argument, at, at + DIGEST_BYTES - 1), sub(argument, at + DIGEST_BYTES)
    store_digest(key, digest, body, call('HGET', key, digest))
  end
end

local function load()
  local failed
  for n = FIRST, #ARGV do
    if sub(ARGV[n], 1, 1) == 'g' then
      for _ = 1, (unpack_struct('>I6', ARGV[n], 2)) do
        seq, unwritten[#unwritten + 1] = seq + 1, ''
        leave_gap(seq)
      end
    else
      failed = load_record(ARGV[n])
    end
    if failed then break end
  end
  write_counters()
  return failed or text_of(seq)
end

-- take_down: remove records out of turn, each with all its members. Its entry stays in the log, where retention passes over it.
--
-- ARGV[3..]  fingerprint or tagged digest of each, behind it its seq (6 bytes)
-- Returns for each 1, or 0 when it is not there any more.
local function take_down()
  local done = {}
  for n = FIRST, #ARGV do
    local place, number = sub(ARGV[n], 1, -SEQ_BYTES - 1), seq_of(sub(ARGV[n], -SEQ_BYTES))
    local entry = entry_of(place, number)
    if not entry.record and has_fingerprint(place) then entry = entry_of(ARGV[n], number) end
    if entry.record then
      remove(entry)
      leave_gap(entry.seq)
    end
    done[#done + 1] = entry.record and 1 or 0
  end
  write_counters()
  return done
end

-- walk: a stretch of the log, and the records that it names, as they are at one moment.
--
-- ARGV[3]  the seq to begin at; the log's first when that is later
-- ARGV[4]  how many entries at most
-- Returns documents, seq, number of records ever removed out of turn, the log's first seq, the seq begun at; then for each
-- entry its name ('': a gap) and the record under that name ('': there is none).
local function walk()
  local first = seq - call('LLEN', layout.log) + 1
  local from = math.max(tonumber(ARGV[FIRST]), first)
  local rows = {text_of(documents), text_of(seq), call('HGET', KEYS[1], 'removed') or '0', text_of(first), text_of(from)}
  for _, name in ipairs(call('LRANGE', layout.log, from - first, from - first + tonumber(ARGV[FIRST + 1]) - 1)) do
    rows[#rows + 1] = name
    rows[#rows + 1] = name ~= '' and call('HGET', key_of(name), name) or ''
  end
  return rows
end

-- read: many small reads in one call: to ask for each by a command of its own takes a client ten times as long.
--
-- ARGV[3]   a command of a key and a member
-- ARGV[4..] key and member of each
-- Returns the command's answer for each.
local function read()
  local answers = {}
  for n = FIRST + 1, #ARGV, 2 do answers[(n - FIRST + 1) / 2] = call(ARGV[FIRST], ARGV[n], ARGV[n + 1]) end
  return answers
end

return ({judge = judge, load = load, take_down = take_down, walk = walk, read = read})[VERB]()
