-- Records --------------------------------------------------------------------------------------------------------
-- A field of ns:r is a record, or, of two and more, 255 and each behind two bytes of length.

local NONE = {}   -- for all who find nothing: not to be added to
local SEVERAL, DIGEST_BYTES = 255, 17

local function records_in(field)
  if not field then return NONE end
  if byte(field) ~= SEVERAL then return {field} end
  local records, at = {}, 2
  while at <= #field do records[#records + 1], at = unpack_struct('>I2c0', field, at) end
  return records
end

local function field_of(records)
  if #records == 1 then return records[1] end
  local parts = {char(SEVERAL)}
  for i = 1, #records do parts[i + 1] = pack('>I2', #records[i]) .. records[i] end
  return table.concat(parts)
end

local function seq_of(record) return (unpack_struct('>I6', record)) end
local function time_of(record) return (unpack_struct('>I6', record, 7)) end

-- Members --------------------------------------------------------------------------------------------------------
-- A bucket holds each member once, with one score. An entry whose member is already there with another score goes in
-- with its score behind the member. Readers look at the member's own bytes only, so they find both.

local function add_member(key, score, member)
  if call('ZADD', key, 'NX', score, member) == 0 then call('ZADD', key, score, member .. text_of(score)) end
end

-- Places ---------------------------------------------------------------------------------------------------------
-- Where a record lies, by what is known of it here.

local stored = on_demand(function()
  local function records_key(fingerprint)
    local own = bits.to_bits(fingerprint)
    return layout.records .. bits.bucket_of(sub(own, #own - layout.bits + 1))
  end

  local function digest_key(digest) return layout.digests .. bits.bucket_of(bits.to_bits(sub(digest, 2, 5))) end

  -- Key and score of a record's i-th band, nil when it has none.
  local function band_of(record, i)
    local at = VERIFIER + COMPARED + (i - 1) * BAND_BYTES
    local band = sub(record, at, at + BAND_BYTES - 1)
    if band == NO_BAND then return nil end
    local own = bits.to_bits(band)
    local score = sub(own, layout.bucket_bits + 1, layout.bucket_bits + layout.band_score_bits)
    return layout.bands[i] .. bits.bucket_of(own), bits.number_of(score)
  end

  -- Whether one of these records has its i-th band in the same place.
  local function shares_place(records, i, key, score)
    for _, record in ipairs(records) do
      local other_key, other_score = band_of(record, i)
      if other_key == key and other_score == score then return true end
    end
    return false
  end

  return {records_key = records_key, digest_key = digest_key, band_of = band_of, shares_place = shares_place}
end)
