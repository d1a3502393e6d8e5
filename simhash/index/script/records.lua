-- Records --------------------------------------------------------------------------------------------------------
-- A field of ns:r is a record, or, of two and more, 255 and each behind two bytes of length.

local SEVERAL = 255

local function records_key(fingerprint)
  local bits = to_bits(fingerprint)
  return layout.records .. bucket_of(sub(bits, #bits - layout.bits + 1))
end

local function records_in(field)
  if not field then return {} end
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

-- Bands ----------------------------------------------------------------------------------------------------------
-- Field and first byte of the member of a record's i-th band, nil when it has none.
local function band_of(record, i)
  local at = VERIFIER + COMPARED + (i - 1) * BAND_BYTES
  local band = sub(record, at, at + BAND_BYTES - 1)
  if band == NO_BAND then return nil end
  local bits, b = to_bits(band), layout.bucket_bits
  local first = sub(bits, b + 1, b + layout.scores[#layout.prefixes + i])
  return field_at(layout.first_band + i - 1, bits), char(number_of(first .. string.rep('0', 8 - #first)))
end

-- Whether one of these records has its i-th band in the same place.
local function shares_place(records, i, field, first)
  for _, record in ipairs(records) do
    local other_field, other_first = band_of(record, i)
    if other_field == field and other_first == first then return true end
  end
  return false
end
