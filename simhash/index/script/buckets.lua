-- Buckets --------------------------------------------------------------------------------------------------------
-- How a bucket holds its members is told in buckets.py. Kinds of buckets are numbered: the tables from 1 on, then the bands.
-- Of each is known which bits its members begin with that a probe is to find (layout.scores: how many): so many whole bytes,
-- and of the next byte the multiples of a unit (256: none of it).

local OUTGROWN = '+'
local TABLES, BANDS = #layout.prefixes, layout.bands
local TABLE_SIZE, BAND_SIZE = layout.member_bytes, layout.fingerprint_bytes + 1
local whole_bytes, units = layout.whole_bytes, layout.units

local function size_of(i) return i > TABLES and BAND_SIZE or TABLE_SIZE end

-- Where a member stands in a bucket, from 1; nil when it does not.
local function place_of(bucket, member)
  local at = find(bucket, member, 1, true)
  while at and (at - 1) % #member > 0 do at = find(bucket, member, at + 1, true) end
  return at
end

-- The bits that a member begins with, as a number.
local function score_of(member, i) return text_of(number_of(sub(to_bits(member), 1, layout.scores[i]))) end

-- The members that begin as this one, of a bucket that is a string; nil: none. `at`: where its whole bytes are first found
-- there, in step or not.
local function alike(bucket, member, i, at)
  local size, whole, unit, found = size_of(i), whole_bytes[i], units[i], nil
  local lead, own = sub(member, 1, whole), unit < 256 and byte(member, whole + 1)
  own = own and own - own % unit
  while at and at <= #bucket do
    local past = (at - 1) % size
    if past > 0 then
      at = at + (whole == 0 and size - past or 1)
    else
      local next_byte = own and byte(bucket, at + whole)
      if not own or next_byte - next_byte % unit == own then
        found = found or {}
        found[#found + 1] = sub(bucket, at, at + size - 1)
      end
      at = at + size
    end
    at = find(bucket, lead, at, true)
  end
  return found
end

-- The members whose first bits differ from this one's in exactly one bit, of a bucket that is a string.
local function nearly_alike(bucket, member, i)
  local found, size, whole, unit = {}, size_of(i), whole_bytes[i], units[i]
  local function first_bits(bytes)
    local last = byte(bytes, whole + 1) or 0
    return sub(bytes, 1, whole) .. char(last - last % unit)
  end
  local own = first_bits(member)
  for at = 1, #bucket, size do
    local other = sub(bucket, at, at + size - 1)
    if distance(own, first_bits(other), 1) == 1 then found[#found + 1] = other end
  end
  return found
end

-- The same of a bucket that outgrew its string: how many members have a score, and which.
local function outgrown_key(field)
  return layout.tables .. ':' .. string.gsub(field, '.', function(c) return string.format('%02x', byte(c)) end)
end
local function count_outgrown(field, score) return call('ZCOUNT', outgrown_key(field), score, score) end
local function outgrown(field, score) return call('ZRANGEBYSCORE', outgrown_key(field), score, score) end
local function add_outgrown(field, member, i) call('ZADD', outgrown_key(field), score_of(member, i), member) end

-- What a bucket is to be written as when it has taken up a member that it has not yet; nil: it is not written.
local function taken_up(field, bucket, member, i)
  if not bucket then return member end
  if #bucket <= layout.most_bytes and bucket ~= OUTGROWN then return bucket .. member end
  if bucket ~= OUTGROWN then
    local size = size_of(i)
    for at = 1, #bucket, size do add_outgrown(field, sub(bucket, at, at + size - 1), i) end
  end
  add_outgrown(field, member, i)
  return bucket ~= OUTGROWN and OUTGROWN or nil
end

local function remove_member(field, member)
  local bucket, key = call('HGET', layout.tables, field), outgrown_key(field)
  local at = bucket and place_of(bucket, member)
  if bucket == OUTGROWN then
    call('ZREM', key, member)
    if call('EXISTS', key) == 0 then call('HDEL', layout.tables, field) end
  elseif at and #bucket == #member then
    call('HDEL', layout.tables, field)
  elseif at then
    call('HSET', layout.tables, field, sub(bucket, 1, at - 1) .. sub(bucket, at + #member))
  end
end
