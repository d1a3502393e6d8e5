-- Judging --------------------------------------------------------------------------------------------------------

local MEMBERS, BANDS = members_at(), bands_at()

-- The best answer so far for the page at hand.
local own_seq, oldest_seq, oldest_record, oldest_distance
local candidates, crowded = 0, false

-- The members of a bucket with this score; none when they make the page's candidates a crowd: see crowds.lua. Most buckets
-- have none, and to count them costs Redis a third less than to list them.
local function met(key, score)
  local count = call('ZCOUNT', key, score, score)
  if count == 0 then return NONE end
  candidates = candidates + count
  crowded = candidates > asked.crowd
  return crowded and NONE or call('ZRANGEBYSCORE', key, score, score)
end

local matching = on_demand(function()
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
    return bits.distance(page.verifier, sub(record, VERIFIER, VERIFIER + COMPARED - 1), layout.verifier_reach) <= layout.verifier_reach
  end

  local function consider_record(record, page_distance, page)
    if sub(record, BODY, BODY + OBSERVATION - 1) == sub(page.body, 1, OBSERVATION) then
      own_seq = seq_of(record)
    elseif (not oldest_seq or seq_of(record) < oldest_seq) and verified(page, record) then
      oldest_seq, oldest_record, oldest_distance = seq_of(record), record, page_distance
    end
  end

  -- Look at the records of a fingerprint: is the page among them, is one of them an older match? With `bands`, the page's,
  -- only at those that share one: of two records under a fingerprint, one may have been met and the other not.
  local function consider(fingerprint, key, page_distance, page, bands)
    page.seen[fingerprint] = true
    local field = call('HGET', key, fingerprint)
    for _, record in ipairs(records_in(field)) do
      if is_live(record) and (not bands or shares_band(record, bands)) then
        consider_record(record, page_distance, page)
      end
    end
    return field
  end

  -- Compare with the members found in a bucket of table i. `flipped`: the one bit of the prefix (from 1) in which they differ
  -- from the page; nil: none.
  local function compare(i, found, page, flipped)
    local own = page.places[MEMBERS + i]
    for n = 1, #found do
      local d = bits.distance(own, found[n], layout.reach) + (flipped and 1 or 0)
      if d == 0 then
        if not page.field then page.field = consider(page.fingerprint, page.places[RECORDS], 0, page) end
      elseif d <= layout.reach then
        local lead = sub(bits.permuted(i, page.fingerprint), 1, layout.prefixes[i])
        if flipped then
          lead = sub(lead, 1, flipped - 1) .. 1 - sub(lead, flipped, flipped) .. sub(lead, flipped + 1)
        end
        local fingerprint = bits.restored(i, lead, sub(found[n], 1, #own))
        if not page.seen[fingerprint] then consider(fingerprint, stored.records_key(fingerprint), d, page) end
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

  -- Members of a band name their fingerprints outright.
  local function compare_band(found, page)
    for n = 1, #found do
      local fingerprint = sub(found[n], 1, #page.fingerprint)
      if not page.seen[fingerprint] then
        local d = bits.distance(page.fingerprint, fingerprint, layout.reach)
        if d <= layout.reach then consider(fingerprint, stored.records_key(fingerprint), d, page, bands_of(page)) end
      end
    end
  end

  return {consider_record = consider_record, consider = consider, bands_of = bands_of, compare = compare,
    probe_flipped = probe_flipped, compare_band = compare_band}
end)

local function probe(page)
  local places = page.places
  for i = 1, #layout.prefixes do
    local key, score = places[TABLES + 2 * (i - 1)], places[TABLES + 2 * (i - 1) + 1]
    local found = met(key, score)
    if #found > 0 then matching.compare(i, found, page) end
    if not own_seq and layout.radius > 0 then matching.probe_flipped(i, key, score, page) end
    if own_seq or crowded then return end
  end
  for i = 1, #layout.bands do
    local key, score = places[BANDS + 2 * (i - 1)], places[BANDS + 2 * (i - 1) + 1]
    local found = byte(score) ~= NO_KEY and met(key, score) or NONE
    if #found > 0 then matching.compare_band(found, page) end
  end
end

local function verdict()
  local count = pack('>I4', candidates)
  if own_seq then return count .. 'u' .. pack('>I6', own_seq) end
  if oldest_seq then return count .. 'd' .. char(oldest_distance) .. oldest_record end
end

local function insert(page)
  local places, records = page.places, records_in(page.field)
  local record = number_record(page.fingerprint, page.body)
  write_bands(places, records)
  write(places, records, record)
  in_next(write_at, page.argument, places[#places], record)
end

local function judge_fingerprint(page)
  page.places = {unpack_struct(layout.places, page.argument, page.at)}
  page.fingerprint, page.seen = page.places[1], {}
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
    matching.consider_record(record, 0, page)
  end
  local known = verdict()
  if known then return known end
  if record then   -- it is over, and its place is taken before retention comes to it
    documents = documents - 1
    leave_gap(seq_of(record))
  end
  local numbered = number_record(digest, page.body)
  call('HSET', key, digest, numbered)
  in_next(write_digest, digest, numbered)
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
