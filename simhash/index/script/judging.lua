-- Judging --------------------------------------------------------------------------------------------------------

-- What a page brings along in `places`: its fingerprint, the key of its records, the fields of its buckets (of all tables,
-- then of all bands), its members in the tables, and the first byte of its member in each band.
local RECORDS, FIELDS_BEFORE = 2, 2
local MEMBERS_BEFORE = FIELDS_BEFORE + TABLES + BANDS
local NONE = {}
local NO_FIELD = 255   -- what the field of a band begins with when there is none

-- The best answer so far for the page at hand.
local own_seq, oldest_seq, oldest_record, oldest_distance
local candidates, crowded = 0, false

-- Counts what a probe meets; whether it has become a crowd: see crowds.lua.
local function meets(count)
  candidates = candidates + count
  crowded = candidates > asked.crowd
  return crowded
end

-- The members of a bucket of kind i that share the first bits of one; nil: none, or so many that the page meets a crowd.
local function met(field, bucket, member, i)
  if bucket == OUTGROWN then
    local score = score_of(member, i)
    return not meets(count_outgrown(field, score)) and outgrown(field, score) or nil
  end
  local at = find(bucket, sub(member, 1, whole_bytes[i]), 1, true)
  if not at then return nil end   -- most often
  local found = alike(bucket, member, i, at)
  return found and not meets(#found) and found or nil
end

-- The field of a page's bucket in table i, or behind the tables by band key i; its member there.
local function field_at_kind(page, i) return page.places[FIELDS_BEFORE + i] end
local function member_at(page, i)
  local own = page.places[MEMBERS_BEFORE + i]
  return i > TABLES and own .. page.fingerprint or own
end

-- What a page brings along, and all its buckets as they are.
local function open_page(page)
  page.places = {unpack_struct(layout.places, page.argument, page.at)}
  page.fingerprint = page.places[1]
end

local function read_buckets(page)
  if not page.buckets then page.buckets = call('HMGET', layout.tables, unpack(page.places, FIELDS_BEFORE + 1, MEMBERS_BEFORE)) end
  return page.buckets
end

local function shares_band(record, bands)
  for at = 1, #bands, BAND_BYTES do
    local key, from = sub(bands, at, at + BAND_BYTES - 1), VERIFIER + COMPARED + at - 1
    if key ~= NO_BAND and key == sub(record, from, from + BAND_BYTES - 1) then return true end
  end
  return false
end

local function bands_of(page)
  return sub(page.body, OBSERVATION + COMPARED + 1, OBSERVATION + layout.verifier_bytes)
end

-- Pages without a fingerprint have no verifier: their digests are equal, and that is all.
local function verified(page, record)
  if COMPARED == 0 or page.kind ~= 'f' then return true end
  page.verifier = page.verifier or sub(page.body, OBSERVATION + 1, OBSERVATION + COMPARED)
  return distance(page.verifier, sub(record, VERIFIER, VERIFIER + COMPARED - 1), layout.verifier_reach) <= layout.verifier_reach
end

local function consider_record(record, page_distance, page)
  if sub(record, BODY, BODY + OBSERVATION - 1) == sub(page.body, 1, OBSERVATION) then
    own_seq = seq_of(record)
  elseif (not oldest_seq or seq_of(record) < oldest_seq) and verified(page, record) then
    oldest_seq, oldest_record, oldest_distance = seq_of(record), record, page_distance
  end
end

local function has_seen(page, fingerprint) return page.seen and page.seen[fingerprint] end

-- Look at the records of a fingerprint: is the page among them, is one of them an older match? With `bands`, the page's,
-- only at those that share one: of two records under a fingerprint, one may have been met and the other not.
local function consider(fingerprint, key, page_distance, page, bands)
  page.seen = page.seen or {}
  page.seen[fingerprint] = true
  local field = call('HGET', key, fingerprint)
  for _, record in ipairs(records_in(field)) do
    if is_live(record) and (not bands or shares_band(record, bands)) then
      consider_record(record, page_distance, page)
    end
  end
  return field
end

-- Compare with members of a bucket of table i. `flipped`: the bit of those that name the bucket (from 1) in which it differs
-- from the page's own; nil: none.
local function compare(i, found, page, flipped)
  local own = member_at(page, i)
  for n = 1, #found do
    local d = distance(own, found[n], layout.reach) + (flipped and 1 or 0)
    if d == 0 then
      if not page.field then page.field = consider(page.fingerprint, page.places[RECORDS], 0, page) end
    elseif d <= layout.reach then
      local lead = sub(permuted(i, page.fingerprint), 1, layout.bucket_bits)
      if flipped then
        lead = sub(lead, 1, flipped - 1) .. 1 - sub(lead, flipped, flipped) .. sub(lead, flipped + 1)
      end
      local fingerprint = restored(i, lead, found[n])
      if not has_seen(page, fingerprint) then consider(fingerprint, records_key(fingerprint), d, page) end
    end
  end
end

-- Buckets whose names differ from the page's own in one bit.
local function probe_other_buckets(i, page)
  local own, member, fields = field_at_kind(page, i), member_at(page, i), {}
  for nth = 1, layout.bucket_bits do
    local bit_at = layout.bucket_bits - nth
    local at = #own - math.floor(bit_at / 8)
    fields[nth] = sub(own, 1, at - 1) .. char(bxor(byte(own, at), 2 ^ (bit_at % 8))) .. sub(own, at + 1)
  end
  local buckets = call('HMGET', layout.tables, unpack(fields))
  for nth, field in ipairs(fields) do
    local found = buckets[nth] and met(field, buckets[nth], member, i)
    if found then compare(i, found, page, nth) end
  end
end

-- Members of the page's own bucket whose first bits differ from its own in one bit.
local function probe_own_bucket(i, page)
  local field, bucket, member = field_at_kind(page, i), page.buckets[i], member_at(page, i)
  if bucket and bucket ~= OUTGROWN then
    local found = nearly_alike(bucket, member, i)
    if not meets(#found) then compare(i, found, page) end
  elseif bucket then
    local own = tonumber(score_of(member, i))
    for nth = 1, layout.scores[i] do
      local value = 2 ^ (layout.scores[i] - nth)
      local score = text_of(math.floor(own / value) % 2 == 0 and own + value or own - value)
      if not meets(count_outgrown(field, score)) then compare(i, outgrown(field, score), page) end
    end
  end
end

-- Members of a band name their fingerprints outright.
local function compare_band(found, page)
  for n = 1, #found do
    local fingerprint = sub(found[n], 2)
    if not has_seen(page, fingerprint) then
      local d = distance(page.fingerprint, fingerprint, layout.reach)
      if d <= layout.reach then consider(fingerprint, records_key(fingerprint), d, page, bands_of(page)) end
    end
  end
end

local function probe(page)
  local places, buckets = page.places, read_buckets(page)
  for i = 1, TABLES do
    local bucket = buckets[i]
    local found = bucket and met(places[FIELDS_BEFORE + i], bucket, places[MEMBERS_BEFORE + i], i)
    if found then compare(i, found, page) end
    if layout.radius > 0 and not own_seq then
      probe_other_buckets(i, page)
      probe_own_bucket(i, page)
    end
    if own_seq or crowded then return end
  end
  for i = TABLES + 1, TABLES + BANDS do
    local bucket = buckets[i]
    local found = bucket and met(places[FIELDS_BEFORE + i], bucket, places[MEMBERS_BEFORE + i], i)
    if found then compare_band(found, page) end
  end
end

local function verdict()
  local count = pack('>I4', candidates)
  if own_seq then return count .. 'u' .. pack('>I6', own_seq) end
  if oldest_seq then return count .. 'd' .. char(oldest_distance) .. oldest_record end
end

-- Write members into the page's buckets from kind `first` to kind `last`, but for those of `skipped`: one command, for each
-- costs as much to log as to carry out.
local function write_members(page, first, last, skipped)
  local places, buckets, written = page.places, page.buckets, {}
  for i = first, last do
    if not skipped[i] then
      local field = places[FIELDS_BEFORE + i]
      local bucket = taken_up(field, buckets[i], member_at(page, i), i)
      if bucket then
        written[#written + 1] = field
        written[#written + 1] = bucket
      end
    end
  end
  if #written > 0 then call('HSET', layout.tables, unpack(written)) end
end

-- The bands in which a page has no field, or one of these other records of its fingerprint is in its place.
local function bands_to_skip(page, others)
  local skipped = NONE
  for i = TABLES + 1, TABLES + BANDS do
    local field = field_at_kind(page, i)
    if byte(field) == NO_FIELD or shares_place(others, i - TABLES, field, page.places[MEMBERS_BEFORE + i]) then
      if skipped == NONE then skipped = {} end
      skipped[i] = true
    end
  end
  return skipped
end

local function insert(page)
  local field = page.field
  local records = field and records_in(field) or NONE
  read_buckets(page)
  write_members(page, field and TABLES + 1 or 1, TABLES + BANDS, bands_to_skip(page, records))
  local record = number_record(page.fingerprint, page.body)
  if field then
    records[#records + 1] = record
    record = field_of(records)
  end
  call('HSET', page.places[RECORDS], page.fingerprint, record)
end

local function judge_fingerprint(page)
  open_page(page)
  probe(page)
  if crowded and not own_seq then return nil end
  local known = verdict()
  if known then return known end
  insert(page)
  return pack('>I4c1I6', candidates, 'u', seq)
end

local function judge_digest(page)
  local digest = sub(page.argument, page.at, page.at + DIGEST_BYTES - 1)
  local key = sub(page.argument, page.at + DIGEST_BYTES)
  local record = call('HGET', key, digest)
  if record and is_live(record) then
    candidates = 1
    consider_record(record, 0, page)
  end
  local known = verdict()
  if known then return known end
  if record then   -- it is over, and its place is taken before retention comes to it
    documents, gaps, removed = documents - 1, gaps + 1, removed + 1
  end
  call('HSET', key, digest, number_record(digest, page.body))
  return pack('>I4c1I6', candidates, 'u', seq)
end

-- The base knows the page; but it was stored here, should it have come before the base had its match.
local function judge_decided(page)
  local key, field
  if page.kind == 'f' then
    local places = {unpack_struct(layout.places, page.argument, page.at)}
    key, field = places[RECORDS], places[1]
  else
    field, key = unpack_struct('>c17', page.argument, page.at), sub(page.argument, page.at + DIGEST_BYTES)
  end
  for _, record in ipairs(records_in(call('HGET', key, field))) do
    local own = sub(record, BODY, BODY + OBSERVATION - 1) == sub(page.body, 1, OBSERVATION)
    if own and is_live(record) then return pack('>I4c1I6', 1, 'u', seq_of(record)) end
  end
  return page.decided
end
