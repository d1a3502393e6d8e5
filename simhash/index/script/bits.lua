-- Bits -----------------------------------------------------------------------------------------------------------

-- A whole number in decimal: Lua itself would write large ones with an exponent.
local function text_of(number) return string.format('%.0f', number) end

-- Permutations are needed here only for matches and removals, so they may be simple: a string of '0' and '1', of
-- which blocks are substrings. A 64-bit number would not fit Lua's doubles.
local bits = on_demand(function()
  local NIBBLES = {[0] = '0000', '0001', '0010', '0011', '0100', '0101', '0110', '0111',
    '1000', '1001', '1010', '1011', '1100', '1101', '1110', '1111'}

  local function table_of(i)
    layout.tables = layout.tables or permutations()
    return layout.tables[i]
  end

  -- These are filled as they are asked: a call needs few of them, and to fill the tables whole takes a millisecond.
  local known_bits = {}
  local bits_of = setmetatable({}, {__index = function(known, character)
    local value = byte(character)
    local text = NIBBLES[(value - value % 16) / 16] .. NIBBLES[value % 16]
    known[character] = text
    return text
  end})

  local byte_of = setmetatable({}, {__index = function(known, text)
    local character = char(tonumber(text, 2))
    known[text] = character
    return character
  end})

  local function to_bits(bytes)
    known_bits[bytes] = known_bits[bytes] or string.gsub(bytes, '.', bits_of)
    return known_bits[bytes]
  end

  local function to_bytes(bits) return (string.gsub(string.rep('0', -#bits % 8) .. bits, '........', byte_of)) end

  local function reorder(bits, runs)
    local parts = {}
    for i = 1, #runs do parts[i] = sub(bits, runs[i][1], runs[i][2]) end
    return table.concat(parts)
  end

  -- A fingerprint as table i permutes it.
  local function permuted(i, fingerprint)
    local bits = to_bits(fingerprint)
    return reorder(sub(bits, #bits - layout.bits + 1), table_of(i).permute)
  end

  -- The fingerprint that table i permutes into these leading bits and this member.
  local function restored(i, lead, member)
    local rest = layout.bits - #lead
    return to_bytes(reorder(lead .. (rest > 0 and sub(to_bits(member), -rest) or ''), table_of(i).restore))
  end

  local function number_of(bits) return bits == '' and 0 or tonumber(bits, 2) end

  -- The bucket that bits begin with.
  local function bucket_of(bits) return string.format(layout.bucket_format, number_of(sub(bits, 1, layout.bucket_bits))) end

  -- How many bits of a byte are 1. Written out, and when it is needed: to count them would take a fifth of a call with a
  -- single page, and to fill the table some microseconds.
  local ones

  local function numbers_of_ones() return {[0] = 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 6,
    3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7,
    3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7,
    4, 5, 5, 6, 5, 6, 6, 7, 5, 6, 6, 7, 6, 7, 7, 8} end

  -- How many bits differ; once they are more than `enough`, some number above it.
  local function distance(a, b, enough)
    local sum = 0
    ones = ones or numbers_of_ones()
    for i = 1, #a, 4 do
      local a1, a2, a3, a4 = byte(a, i, i + 3)
      local b1, b2, b3, b4 = byte(b, i, i + 3)
      sum = sum + ones[bxor(a1, b1)]
      if a2 then sum = sum + ones[bxor(a2, b2)] end
      if a3 then sum = sum + ones[bxor(a3, b3)] end
      if a4 then sum = sum + ones[bxor(a4, b4)] end
      if sum > enough then return sum end
    end
    return sum
  end

  return {table_of = table_of, to_bits = to_bits, to_bytes = to_bytes, permuted = permuted, restored = restored,
    number_of = number_of, bucket_of = bucket_of, distance = distance}
end)
