-- Judge a batch of pages, in order, in one atomic step; store those that match nothing.
--
-- KEYS[1]  ns:meta                     HASH   generation, seq (last number given), documents, and the spec
-- All other keys are made here from ARGV[1], the index's name ns (so: one primary, not a cluster):
--   ns:t<i>:<top b bits, hex>          ZSET   scores 0; members: the rest of the fingerprint as table i permutes it
--   ns:b<i>:<top b bits, hex>          ZSET   scores 0; members: the rest of band key i, then the fingerprint
--   ns:r:<top b bits, hex>             HASH   fingerprint -> its records, each behind two bytes of length
--   ns:x:<top b bits, hex>             HASH   tagged digest -> record, for pages without a fingerprint
--   ns:log                             LIST   one entry per stored record, oldest first
--   ns:j:<topic>:<partition>           HASH   offset (6 bytes) -> observation and answer; "mark" -> committed offset
--
-- ARGV[1] ns   ARGV[2] generation   ARGV[3] layout (JSON, see Layout.for_script)
-- ARGV[4] partitions: JSON list of [journal key, committed offset or -1]
-- ARGV[5..] pages: kind 'f' (has a fingerprint) or 'd' (digest only), partition (2 bytes; 0: no journal), offset
--   (6 bytes), body (2 bytes of length, then observation 16, verifier, digest 17, tail), then
--   'f': fingerprint, its bucket, for each table and then each band bucket and rest;   'd': the digest's bucket.
-- A record is: seq (6 bytes), insertion time in ms (6 bytes), body.   Integers are big-endian throughout.
-- Returns one answer a page: candidates compared (4 bytes), then 'u' seq | 'd' distance (1 byte) record.

local ns, layout, partitions = ARGV[1], cjson.decode(ARGV[3]), cjson.decode(ARGV[4])
local FIRST_PAGE = 5
local OBSERVATION, COMPARED = 16, layout.compared_bytes   -- of the verifier, the bytes before its band keys
local BAND_BYTES, NO_BAND = 4, '\0\0\0\0'
local BODY = 13                        -- where the body starts in a record
local byte, sub, char = string.byte, string.sub, string.char
local band, bor, bxor = bit.band, bit.bor, bit.bxor
local pack, unpack_struct, call = struct.pack, struct.unpack, redis.call
local tables, radius = layout.tables, layout.radius
local last = string.rep('\255', layout.rest_bytes)
local no_bucket = string.rep('-', layout.bucket_digits)
local hex = '%0' .. layout.bucket_digits .. 'x'

local ones = {[0] = 0}
for i = 1, 255 do ones[i] = ones[(i - i % 2) / 2] + i % 2 end

local meta = call('HMGET', KEYS[1], 'generation', 'seq', 'documents')
if meta[1] ~= ARGV[2] then
  return redis.error_reply('GENERATION ' .. tostring(meta[1]))
end
local seq, documents = tonumber(meta[2]), tonumber(meta[3])

local now = layout.now_ms
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local oldest_live = layout.max_age_ms >= 0 and now - layout.max_age_ms or -1

-- Bits as text --------------------------------------------------------------------------------------------------
-- Permutations are needed here only for matches and removals, so they may be simple: a string of '0' and '1', of
-- which blocks are substrings. A 64-bit number would not fit Lua's doubles.

local bits_of, byte_of

local function prepare_bits()
  bits_of, byte_of = {}, {}
  for i = 0, 255 do
    local text, rest = '', i
    for _ = 1, 8 do
      text = rest % 2 .. text
      rest = (rest - rest % 2) / 2
    end
    bits_of[char(i)], byte_of[text] = text, char(i)
  end
end

local function to_bits(bytes)
  if not bits_of then prepare_bits() end
  return (string.gsub(bytes, '.', bits_of))
end

local function to_bytes(bits)
  return (string.gsub(string.rep('0', -#bits % 8) .. bits, '........', byte_of))
end

local function bucket_bits(bucket)
  return sub(to_bits(pack('>I4', tonumber(bucket, 16))), 33 - layout.bucket_bits)
end

local function reorder(bits, runs)
  local parts = {}
  for i = 1, #runs do parts[i] = sub(bits, runs[i][1], runs[i][2]) end
  return table.concat(parts)
end

local function restored(i, bucket, rest)
  local bits = bucket_bits(bucket) .. sub(to_bits(rest), -(layout.bits - layout.bucket_bits))
  return to_bytes(reorder(bits, tables[i].restore))
end

local function bucket_of(bits)
  return string.format(hex, tonumber(sub(bits, 1, layout.bucket_bits), 2))
end

-- Distances -----------------------------------------------------------------------------------------------------

local function distance(a, b)
  local sum = 0
  for i = 1, #a, 4 do
    local a1, a2, a3, a4 = byte(a, i, i + 3)
    local b1, b2, b3, b4 = byte(b, i, i + 3)
    sum = sum + ones[bxor(a1, b1)]
    if a2 then sum = sum + ones[bxor(a2, b2)] end
    if a3 then sum = sum + ones[bxor(a3, b3)] end
    if a4 then sum = sum + ones[bxor(a4, b4)] end
  end
  return sum
end

-- Records -------------------------------------------------------------------------------------------------------

local function records_key(fingerprint)
  return ns .. ':r:' .. bucket_of(to_bits(sub(fingerprint, 1, 4)))
end

local function each_record(field)
  local at = 1
  return function()
    if at > #field then return nil end
    local record
    record, at = unpack_struct('>I2c0', field, at)
    return record
  end
end

local function seq_of(record) return (unpack_struct('>I6', record)) end
local function time_of(record) return (unpack_struct('>I6', record, 7)) end

-- Retention -----------------------------------------------------------------------------------------------------

local function remove_members(fingerprint)
  local bits = to_bits(fingerprint)
  for i = 1, #tables do
    local permuted = reorder(bits, tables[i].permute)
    call('ZREM', tables[i].key .. bucket_of(permuted), to_bytes(sub(permuted, layout.bucket_bits + 1)))
  end
end

-- The key and the rest of a record's i-th band, nil when it has none.
local function band_of(record, i)
  local at = BODY + OBSERVATION + COMPARED + (i - 1) * BAND_BYTES
  local band = sub(record, at, at + BAND_BYTES - 1)
  if band == NO_BAND then return nil end
  local bits = to_bits(band)
  local rest = to_bytes(sub(bits, layout.bucket_bits + 1))
  return layout.bands[i] .. bucket_of(bits), string.rep('\0', layout.band_rest_bytes - #rest) .. rest
end

-- Another record of the same fingerprint may hold the same band.
local function remove_bands(fingerprint, removed, others)
  for i = 1, #layout.bands do
    local key, rest = band_of(removed, i)
    for _, other in ipairs(others) do
      local other_key, other_rest = band_of(other, i)
      if other_key == key and other_rest == rest then key = nil end
    end
    if key then call('ZREM', key, rest .. fingerprint) end
  end
end

local function remove_fingerprint_record(fingerprint, gone)
  local key, kept, others, removed = records_key(fingerprint), {}, {}, nil
  for record in each_record(call('HGET', key, fingerprint) or '') do
    if seq_of(record) == gone then
      removed = record
    else
      kept[#kept + 1] = pack('>I2', #record) .. record
      others[#others + 1] = record
    end
  end
  if removed then remove_bands(fingerprint, removed, others) end
  if #kept > 0 then
    call('HSET', key, fingerprint, table.concat(kept))
  else
    call('HDEL', key, fingerprint)
    remove_members(fingerprint)
  end
end

local function remove_digest_record(digest, gone)
  local key = ns .. ':x:' .. bucket_of(to_bits(sub(digest, 2, 5)))
  local record = call('HGET', key, digest)
  if record and seq_of(record) == gone then call('HDEL', key, digest) end
end

local function remove_oldest(entry)
  local kind, gone = unpack_struct('>c1I6', entry)
  local remove = kind == 'f' and remove_fingerprint_record or remove_digest_record
  remove(sub(entry, 14), gone)
  call('LPOP', ns .. ':log')
  documents = documents - 1
end

local function expire(budget)
  while oldest_live >= 0 and budget > 0 do
    local entry = call('LINDEX', ns .. ':log', 0)
    if not entry or unpack_struct('>I6', entry, 8) >= oldest_live then return end
    remove_oldest(entry)
    budget = budget - 1
  end
end

-- Judging -------------------------------------------------------------------------------------------------------

-- The best answer so far for the page at hand.
local own_seq, oldest_seq, oldest_record, oldest_distance, candidates

local function shares_band(record, bands)
  for at = 1, #bands, BAND_BYTES do
    local key, from = sub(bands, at, at + BAND_BYTES - 1), BODY + OBSERVATION + COMPARED + at - 1
    if key ~= NO_BAND and key == sub(record, from, from + BAND_BYTES - 1) then return true end
  end
  return false
end

-- Look at the records of one field: is the page among them, is one of them an older match? With `bands`, the page's,
-- only at those that share one: of two records under a fingerprint, one may have been met and the other not.
local function consider(field, page_distance, page, bands)
  local verifier = page.verifier
  for record in each_record(field) do
    if time_of(record) >= oldest_live and (not bands or shares_band(record, bands)) then
      if sub(record, BODY, BODY + OBSERVATION - 1) == page.observation then
        own_seq = seq_of(record)
      elseif not oldest_seq or seq_of(record) < oldest_seq then
        local at = BODY + OBSERVATION
        if COMPARED == 0 or distance(verifier, sub(record, at, at + COMPARED - 1)) <= layout.verifier_reach then
          oldest_seq, oldest_record, oldest_distance = seq_of(record), record, page_distance
        end
      end
    end
  end
end

-- The members of a bucket whose bits b..p equal those of `rest`.
local function members(i, key, rest)
  local t = tables[i]
  if t.whole_bucket then return call('ZRANGE', key, 0, -1) end
  local head = sub(rest, 1, t.range_bytes)
  local edge = byte(rest, t.range_bytes + 1)
  local low = char(band(edge, 255 - t.range_mask))
  local high = char(bor(edge, t.range_mask))
  return call('ZRANGEBYLEX', key, '[' .. head .. low, '[' .. head .. high .. last)
end

local function compare(i, bucket, found, rest, flipped, page)
  candidates = candidates + #found
  for n = 1, #found do
    local member = found[n]
    local d = distance(rest, member) + flipped
    if d > 0 and d <= layout.reach then
      local fingerprint = restored(i, bucket, member)
      if not page.seen[fingerprint] then
        page.seen[fingerprint] = true
        consider(call('HGET', records_key(fingerprint), fingerprint) or '', d, page)
      end
    end
  end
end

-- Members of a band name their fingerprints outright.
local function compare_band(key, rest, page)
  local found = call('ZRANGEBYLEX', key, '[' .. rest, '[' .. rest .. string.rep('\255', layout.fingerprint_bytes))
  candidates = candidates + #found
  for n = 1, #found do
    local fingerprint = sub(found[n], layout.band_rest_bytes + 1)
    if fingerprint ~= page.fingerprint and not page.seen[fingerprint] then
      local d = distance(page.fingerprint, fingerprint)
      if d <= layout.reach then
        page.seen[fingerprint] = true
        consider(call('HGET', records_key(fingerprint), fingerprint) or '', d, page, page.bands)
      end
    end
  end
end

local function flipped_rest(rest, nth)
  local at = math.floor(nth / 8) + 1
  return sub(rest, 1, at - 1) .. char(bxor(byte(rest, at), 2 ^ (7 - nth % 8))) .. sub(rest, at + 1)
end

-- Prefixes that differ from the page's own in one bit: of the bucket's bits, then of the bits behind them.
local function probe_flipped(i, bucket, rest, page)
  local number = tonumber(bucket, 16)
  for nth = 0, layout.bucket_bits - 1 do
    local other = string.format(hex, bxor(number, 2 ^ nth))
    compare(i, other, members(i, tables[i].key .. other, rest), rest, 1, page)
  end
  for nth = tables[i].first_bit, tables[i].last_bit do
    compare(i, bucket, members(i, tables[i].key .. bucket, flipped_rest(rest, nth)), rest, 0, page)
  end
end

local function probe(page, places)
  for i = 1, #tables do
    local bucket, rest = places[2 * i - 1], places[2 * i]
    compare(i, bucket, members(i, tables[i].key .. bucket, rest), rest, 0, page)
    if radius > 0 then probe_flipped(i, bucket, rest, page) end
  end
  for i = 1, #layout.bands do
    local bucket, rest = places[2 * (#tables + i) - 1], places[2 * (#tables + i)]
    if bucket ~= no_bucket then compare_band(layout.bands[i] .. bucket, rest, page) end
  end
end

local logged = {}

local function log(kind, key)
  seq, documents = seq + 1, documents + 1
  logged[#logged + 1] = pack('>c1I6I6', kind, seq, now) .. key
  return pack('>I6I6', seq, now)
end

local function flush_log()
  if #logged > 0 then call('RPUSH', ns .. ':log', unpack(logged)) end
  logged = {}
end

local function bound_documents()
  if layout.max_documents < 0 or documents <= layout.max_documents then return end
  flush_log()
  while documents > layout.max_documents do remove_oldest(call('LINDEX', ns .. ':log', 0)) end
end

local function insert(page, fingerprint, key, field, places)
  local record = log('f', fingerprint) .. page.body
  call('HSET', key, fingerprint, (field or '') .. pack('>I2', #record) .. record)
  for i = 1, #layout.bands do
    local bucket, rest = places[2 * (#tables + i) - 1], places[2 * (#tables + i)]
    if bucket ~= no_bucket then call('ZADD', layout.bands[i] .. bucket, 0, rest .. fingerprint) end
  end
  if field then return end
  for i = 1, #tables do call('ZADD', tables[i].key .. places[2 * i - 1], 0, places[2 * i]) end
end

local function verdict()
  local count = pack('>I4', candidates)
  if own_seq then return count .. 'u' .. pack('>I6', own_seq) end
  if oldest_seq then return count .. 'd' .. char(oldest_distance) .. oldest_record end
end

local function judge_fingerprint(page, argument, at)
  local places = {unpack_struct(layout.places, argument, at)}
  local fingerprint, bucket = places[1], places[2]
  table.remove(places, 1)
  table.remove(places, 1)
  local key = ns .. ':r:' .. bucket
  local field = call('HGET', key, fingerprint)
  page.verifier = sub(page.body, OBSERVATION + 1, OBSERVATION + COMPARED)
  page.bands = sub(page.body, OBSERVATION + COMPARED + 1, OBSERVATION + layout.verifier_bytes)
  page.fingerprint, page.seen = fingerprint, {}
  if field then
    candidates = 1
    consider(field, 0, page)
  end
  if not own_seq then probe(page, places) end
  local known = verdict()
  if known then return known end
  insert(page, fingerprint, key, field, places)
  return pack('>I4c1I6', candidates, 'u', seq)
end

local function judge_digest(page, argument, at)
  local digest = sub(page.body, OBSERVATION + 1, OBSERVATION + 17)
  local key = ns .. ':x:' .. sub(argument, at)
  local record = call('HGET', key, digest)
  if record and time_of(record) >= oldest_live then
    candidates = 1
    if sub(record, BODY, BODY + OBSERVATION - 1) == page.observation then
      own_seq = seq_of(record)
    else
      oldest_seq, oldest_record, oldest_distance = seq_of(record), record, 0
    end
  end
  local known = verdict()
  if known then return known end
  call('HSET', key, digest, log('d', digest) .. page.body)
  return pack('>I4c1I6', candidates, 'u', seq)
end

local function judge(argument)
  local kind, _, _, body, at = unpack_struct('>c1I2c6I2c0', argument)
  own_seq, oldest_seq, oldest_record, oldest_distance, candidates = nil, nil, nil, nil, 0
  local page = {body = body, observation = sub(body, 1, OBSERVATION)}
  local decide = kind == 'f' and judge_fingerprint or judge_digest
  local answer = decide(page, argument, at)
  bound_documents()
  return answer
end

-- Journals ------------------------------------------------------------------------------------------------------

local function trim(key, mark)
  local done = {}
  for _, field in ipairs(call('HKEYS', key)) do
    if #field == 6 and unpack_struct('>I6', field) < mark then done[#done + 1] = field end
  end
  if #done > 0 then call('HDEL', key, unpack(done)) end
end

local function move_mark(partition)
  local key, committed = partition[1], partition[2]
  local mark = tonumber(call('HGET', key, 'mark') or '-1')
  if committed > mark then
    call('HSET', key, 'mark', string.format('%.0f', committed))
    trim(key, committed)
    mark = committed
  end
  partition.mark, partition.fields, partition.pages, partition.writes = mark, {}, {}, {}
end

-- Sort the pages by partition; false when one of them is below its partition's mark.
local function sort_pages()
  for n = FIRST_PAGE, #ARGV do
    local _, p, field = unpack_struct('>c1I2c6', ARGV[n])
    if p > 0 then
      local partition = partitions[p]
      if unpack_struct('>I6', field) < partition.mark then
        return redis.error_reply('STALE ' .. partition[1] .. ' ' .. string.format('%.0f', partition.mark))
      end
      partition.fields[#partition.fields + 1] = field
      partition.pages[#partition.pages + 1] = n
    end
  end
end

local answers = {}

local function read_journal(partition)
  if #partition.fields == 0 then return end
  local found = call('HMGET', partition[1], unpack(partition.fields))
  for i, n in ipairs(partition.pages) do
    local own = sub(ARGV[n], 12, 11 + OBSERVATION)
    if found[i] and sub(found[i], 1, OBSERVATION) == own then
      answers[n] = sub(found[i], OBSERVATION + 1)
    else
      partition.writes[#partition.writes + 1] = i
    end
  end
end

local function write_journal(partition)
  local pairs_ = {}
  for _, i in ipairs(partition.writes) do
    local n = partition.pages[i]
    pairs_[#pairs_ + 1] = partition.fields[i]
    pairs_[#pairs_ + 1] = sub(ARGV[n], 12, 11 + OBSERVATION) .. answers[n]
  end
  if #pairs_ > 0 then call('HSET', partition[1], unpack(pairs_)) end
end

for _, partition in ipairs(partitions) do move_mark(partition) end
local stale = sort_pages()
if stale then return stale end
for _, partition in ipairs(partitions) do read_journal(partition) end
expire(layout.expire_budget)
local result = {}
for n = FIRST_PAGE, #ARGV do
  answers[n] = answers[n] or judge(ARGV[n])
  result[n - FIRST_PAGE + 1] = answers[n]
end
flush_log()
for _, partition in ipairs(partitions) do write_journal(partition) end
call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'documents', string.format('%.0f', documents))
return result
