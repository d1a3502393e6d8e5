-- Writing --------------------------------------------------------------------------------------------------------

-- What a page brings along in `places`: its fingerprint, the key of its records, then for each table key and score, for each
-- table the member, for each band key and score; last, where in its argument that ends.
local RECORDS, TABLES = 2, 3
local function members_at() return 2 + 2 * #layout.prefixes end
local function bands_at() return 3 + 3 * #layout.prefixes end
local NO_KEY = byte('-')   -- what the score of a band begins with when there is none

local function write_bands(places, others)
  local at = bands_at()
  for i = 1, #layout.bands do
    local key, score = places[at], places[at + 1]
    if byte(score) ~= NO_KEY and not (others[1] and stored.shares_place(others, i, key, tonumber(score))) then
      add_member(key, score, places[1])
    end
    at = at + 2
  end
end

-- Store a record that has its number; `records`: those that are stored under its fingerprint, in the order of their numbers.
local function write(places, records, record)
  if #records > 0 then
    local at = #records + 1
    while at > 1 and seq_of(records[at - 1]) > seq_of(record) do at = at - 1 end
    table.insert(records, at, record)
    call('HSET', places[RECORDS], places[1], field_of(records))
    return
  end
  call('HSET', places[RECORDS], places[1], record)
  local members = members_at()
  for i = 1, #layout.prefixes do
    add_member(places[TABLES + 2 * (i - 1)], places[TABLES + 2 * (i - 1) + 1], places[members + i])
  end
end

-- The same with its bands, where the places of its fingerprint begin at a byte of an argument.
local function write_at(argument, at, record)
  local places = {unpack_struct(layout.stands, argument, at)}
  local fingerprint, records = places[1], records_in(call('HGET', places[RECORDS], places[1]))
  for i = 1, #layout.bands do
    local key, score = stored.band_of(record, i)
    if key and not stored.shares_place(records, i, key, score) then add_member(key, text_of(score), fingerprint) end
  end
  write(places, records, record)
end

local function write_digest(digest, record) call('HSET', stored.digest_key(digest), digest, record) end
