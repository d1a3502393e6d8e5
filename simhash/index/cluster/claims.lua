-- The claim slot of an index on a cluster: who judges which page, the journals and the counters. Each call is one atomic
-- step; all keys lie in one slot, so this one primary sees them together. `claims.py` makes the calls. The script is made
-- of claims (this: judging), taking (what others have left, removals), filling (records that are not judged), migrating
-- (another generation beside this one) and looking (what there is), one behind the other.
--
-- KEYS[1]  {ns:claim}:meta                 HASH  generation, the spec; seq, documents, nonce; first, the oldest
--                                                seq there is; floor, the oldest that is not too many
-- KEYS[2]  {ns:claim}:claims               HASH  observation, or "removal of" and seq -> the claim (see below)
-- KEYS[3]  {ns:claim}:meet                 HASH  key by which pages meet -> the claims that have it, 16 bytes each
-- KEYS[4]  {ns:claim}:gone                 ZSET  seq of what was removed out of turn
-- KEYS[5]  {ns:claim}:groups               STRING  for each group 8 bytes of its server's replication id, and 6: how many
--                                                calls had written there when the last work was finished
-- KEYS[6]  {ns:claim}:loading              HASH  see filling.lua
-- KEYS[7]  {ns:claim}:next                 HASH  see migrating.lua
-- KEYS[8..] {ns:claim}:j:<topic>:<number>  HASH  journal: offset -> observation and answer; "mark" -> committed offset
--
-- ARGV[1]  generation   ARGV[2]  command   ARGV[3]  four words: now in ms (-1: this server's clock); the history that the
-- caller counts on (see ../script/history.lua; '': on none); for `claim` the base (see ../base.py); what the tags of the
-- groups start with that the caller writes to beside those of this generation ('': to none; *: it does not write)
-- ARGV[4..]  see each command
--
-- A claim: state ('held', 'numbered' or 'removal'), writers (every nonce that may have written; the holder's is the
-- last), journal key ('': none), offset, fingerprint (or tagged digest), verifier, keys, seq, time, body, and what was beside
-- the index when it was made. Keys by which pages meet are 9 bytes: 'f' and the fingerprint, 'x' and a digest, or a table or
-- band and its prefix. Two pages conflict when they have an 'f' or 'x' key in common, or any other key and match. Integers
-- are big-endian.

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local byte, sub = string.byte, string.sub
local bxor = bit.bxor
local meta, claims_key, meet_key, gone_key, groups_key, loading = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local next_key = KEYS[7]
local FIRST_JOURNAL, ID, KEY = 8, 16, 9
local STATE, WRITERS, JOURNAL, OFFSET, FINGERPRINT, VERIFIER, MEETING, SEQ, TIME, BODY = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local BESIDE = 11

local head = call('HMGET', meta, 'generation', 'seq', 'documents', 'first', 'floor', 'reach', 'verifier_reach', 'history', 'base',
  'next')
if head[1] ~= ARGV[1] then return redis.error_reply('GENERATION ' .. tostring(head[1])) end
local asked_now, history, base, beside = string.match(ARGV[3], '(%S+) (%S*) (%S*) (.*)')
local server = 'master_replid:' .. sub(history, 14)
if history ~= '' and not (head[8] == history and string.find(call('INFO', 'replication'), server, 1, true)) then
  return redis.error_reply('HISTORY')
end
if beside ~= '*' and beside ~= (head[10] or '') then return redis.error_reply('NEXT') end
local seq, documents = tonumber(head[2]), tonumber(head[3])
local first, floor = tonumber(head[4]), tonumber(head[5])
local reach, verifier_reach = tonumber(head[6]), tonumber(head[7])

local function clock()
  local now = tonumber(asked_now)
  if now >= 0 then return now end
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function number(value) return string.format('%.0f', value) end

-- Claims --------------------------------------------------------------------------------------------------------

local loaded = {}

local function load(id)
  if loaded[id] == nil then
    local packed = call('HGET', claims_key, id)
    loaded[id] = packed and cmsgpack.unpack(packed) or false
  end
  return loaded[id]
end

local function store(id, claim)
  loaded[id] = claim
  call('HSET', claims_key, id, cmsgpack.pack(claim))
end

local function holder(claim) return claim[WRITERS][#claim[WRITERS]] end

-- Enter an id under its keys; `found`: what is there already.
local function enter(id, keys, found)
  local fields = {}
  for i = 1, #keys do
    fields[#fields + 1] = keys[i]
    fields[#fields + 1] = (found[i] or '') .. id
  end
  call('HSET', meet_key, unpack(fields))
end

local function drop(id, claim)
  loaded[id] = false
  call('HDEL', claims_key, id)
  local keys = claim[MEETING]
  local found, kept, empty = call('HMGET', meet_key, unpack(keys)), {}, {}
  for i, ids in ipairs(found) do
    local rest = {}
    for at = 1, #(ids or ''), ID do
      local other = sub(ids, at, at + ID - 1)
      if other ~= id then rest[#rest + 1] = other end
    end
    if #rest > 0 then
      kept[#kept + 1] = keys[i]
      kept[#kept + 1] = table.concat(rest)
    else
      empty[#empty + 1] = keys[i]
    end
  end
  if #kept > 0 then call('HSET', meet_key, unpack(kept)) end
  if #empty > 0 then call('HDEL', meet_key, unpack(empty)) end
end

-- Conflicts -----------------------------------------------------------------------------------------------------

local ones = {[0] = 0}
for i = 1, 255 do ones[i] = ones[(i - i % 2) / 2] + i % 2 end

local function distance(a, b)
  local sum = 0
  for i = 1, #a do sum = sum + ones[bxor(byte(a, i), byte(b, i))] end
  return sum
end

local function near(a_fingerprint, a_verifier, b_fingerprint, b_verifier)
  if #a_fingerprint ~= #b_fingerprint or distance(a_fingerprint, b_fingerprint) > reach then return false end
  return verifier_reach < 0 or distance(a_verifier, b_verifier) <= verifier_reach
end

local function always(key)
  local kind = byte(key)
  return kind == 102 or kind == 120   -- 'f', 'x'
end

-- A claim of another nonce that conflicts with the page, or a page of this call that was refused before it.
local function conflict(page, found, nonce, refused)
  for i, key in ipairs(page.probes) do
    local ids = found[i] or ''
    for at = 1, #ids, ID do
      local id = sub(ids, at, at + ID - 1)
      local other = load(id)
      if other and holder(other) ~= nonce then
        if always(key) then return id end
        if other[STATE] ~= 'removal' and near(page.fingerprint, page.verifier, other[FINGERPRINT], other[VERIFIER]) then
          return id
        end
      end
    end
    for _, other in ipairs(refused[key] or {}) do
      if always(key) or near(page.fingerprint, page.verifier, other.fingerprint, other.verifier) then return other.id end
    end
  end
end

-- Journals ------------------------------------------------------------------------------------------------------

local function trim(key, mark)
  local done = {}
  for _, field in ipairs(call('HKEYS', key)) do
    if #field == 6 and unpack_struct('>I6', field) < mark then done[#done + 1] = field end
  end
  if #done > 0 then call('HDEL', key, unpack(done)) end
end

local marks = {}

local function mark_of(journal)
  if not marks[journal] then marks[journal] = tonumber(call('HGET', journal, 'mark') or '-1') end
  return marks[journal]
end

local function move_mark(journal, committed)
  if committed <= mark_of(journal) then return end
  call('HSET', journal, 'mark', number(committed))
  trim(journal, committed)
  marks[journal] = committed
end

local function journalled(page)
  if page.journal == '' then return nil end
  local found = call('HGET', page.journal, page.offset)
  if found and sub(found, 1, ID) == page.id then return sub(found, ID + 1) end
end

local function write_journal(journal, offset, id, answer)
  if journal == '' or unpack_struct('>I6', offset) < mark_of(journal) then return end
  call('HSET', journal, offset, id .. answer)
end

-- Groups --------------------------------------------------------------------------------------------------------

local GROUP, SERVER, TALLY = 14, 8, 15   -- bytes of a group, of its server's id in it, and of a group behind its number

local function groups() return call('GET', groups_key) or '' end

local function in_group(known, group, from, to) return sub(known, group * GROUP + from, group * GROUP + to) end

-- Exchange the entries of some groups (from 0).
local function write_groups(known, changed)
  local parts = {}
  for group = 0, #known / GROUP - 1 do parts[group + 1] = changed[group] or in_group(known, group, 1, GROUP) end
  call('SET', groups_key, table.concat(parts))
end

-- Count in what was written for finished work: for each group its number, its server and the count of its writes since
-- then. A refusal when a group has changed its server: what was written there may be lost, and is written once more.
local function untallied(tallies)
  local known, changed = groups(), {}
  for at = 1, #tallies, TALLY do
    local group, tally = byte(tallies, at), sub(tallies, at + 1, at + GROUP)
    if in_group(known, group, 1, SERVER) ~= sub(tally, 1, SERVER) then
      return redis.error_reply('UNSETTLED a group has another server now')
    end
    local before = unpack_struct('>I6', in_group(known, group, SERVER + 1, GROUP))
    if unpack_struct('>I6', tally, SERVER + 1) > before then changed[group] = tally end
  end
  if next(changed) then write_groups(known, changed) end
end

-- Commands ------------------------------------------------------------------------------------------------------

local commands = {}

local function stored() return seq - first + 1 - call('ZCARD', gone_key) end

local function new_nonce() return call('HINCRBY', meta, 'nonce', 1) end

-- A page: observation 16, journal (2 bytes, from 1; 0: none), offset 6, fingerprint or digest, verifier (each behind a byte of
-- length), how many keys it has (2 bytes) and how many it is looked for under (2 bytes; its own are the first), the keys.
local function page_of(argument)
  local id, journal, offset, fingerprint, verifier, own, probes, at = unpack_struct('>c16I2c6Bc0Bc0I2I2', argument)
  local page = {id = id, offset = offset, fingerprint = fingerprint, verifier = verifier, keys = {}, probes = {}}
  page.journal = journal > 0 and KEYS[FIRST_JOURNAL + journal - 1] or ''
  for i = 1, probes do
    local key = sub(argument, at, at + KEY - 1)
    at = at + KEY
    page.probes[i] = key
    if i <= own then page.keys[i] = key end
  end
  return page
end

local function refuse(page, refused)
  for _, key in ipairs(page.keys) do
    refused[key] = refused[key] or {}
    table.insert(refused[key], page)
  end
end

-- Nonces, 6 bytes each.
local function packed(nonces)
  local parts = {}
  for i, nonce in ipairs(nonces) do parts[i] = pack('>I6', nonce) end
  return table.concat(parts)
end

-- A numbered claim in full: number of writers (1 byte), each 6; seq 6; time 6; body.
local function resumed(claim)
  return pack('>B', #claim[WRITERS]) .. packed(claim[WRITERS]) .. pack('>I6I6', claim[SEQ], claim[TIME]) .. claim[BODY]
end

local function taken_over(id, claim, nonce)
  if holder(claim) ~= nonce then
    table.insert(claim[WRITERS], nonce)
    store(id, claim)
  end
end

-- One page's part of `claim`: 'j' answer: decided; 'c': claimed; 'n' ...: numbered before, go on; 's': as the same page
-- earlier in this call; 'b' id: that claim, or earlier page of this call, is in the way.
local function claim(page, nonce, refused, seen)
  if seen[page.id] then return 's' end
  seen[page.id] = true
  local answer = journalled(page)
  if answer then return 'j' .. answer end
  local own = load(page.id)
  if own and own[STATE] == 'numbered' then
    local writers = resumed(own)
    taken_over(page.id, own, nonce)
    return 'n' .. writers
  end
  local found = call('HMGET', meet_key, unpack(page.probes))
  local blocker = conflict(page, found, nonce, refused)
  if blocker then
    refuse(page, refused)
    return 'b' .. blocker
  end
  enter(page.id, page.keys, found)
  store(page.id, {
    'held', {nonce}, page.journal, page.offset, page.fingerprint, page.verifier, page.keys, 0, 0, '', beside,
  })
  return 'c'
end

-- The number behind so many records, counted from this one on.
local function behind(from, count)
  local wanted, before = from + count, nil
  repeat
    before = wanted
    wanted = from + count + call('ZCOUNT', gone_key, number(from), '(' .. number(before))
  until wanted == before
  return wanted
end

-- Records below the floor count as forgotten from now on, whatever becomes of the others.
local function raise_floor(most, least)
  local raised = math.max(floor, least)
  local excess = most < 0 and 0 or stored() - most
  if excess > 0 then raised = math.max(raised, behind(first, excess)) end
  if raised > floor then
    floor = raised
    call('HSET', meta, 'floor', number(floor))
  end
end

-- How many records are not below the floor, those that are still being written too.
local function kept()
  local from = math.max(first, floor)
  return seq - from + 1 - call('ZCOUNT', gone_key, number(from), '+inf')
end

-- The numbers without a record by which the floor may come to lie higher, when so many more pages are numbered.
local function gone_above_floor(most, pages)
  local from, excess = math.max(first, floor), most < 0 and 0 or kept() + pages - most
  if excess <= 0 then return {} end
  return call('ZRANGEBYSCORE', gone_key, number(from), '(' .. number(behind(from, excess)))
end

-- ARGV[4] committed offsets of the journals (JSON list; -1: unknown)   ARGV[5] most records to keep; -1: all
-- ARGV[6..] pages
-- Returns nonce, now, seq, how many records are kept, the gone numbers above the floor, first, floor, the groups, then one
-- reply a page.
function commands.claim()
  if base ~= (head[9] or '') then return redis.error_reply('BASE ' .. (head[9] or '')) end
  for i, committed in ipairs(cjson.decode(ARGV[4])) do move_mark(KEYS[FIRST_JOURNAL + i - 1], committed) end
  local pages = {}
  for n = 6, #ARGV do
    local page = page_of(ARGV[n])
    pages[#pages + 1] = page
    if page.journal ~= '' and unpack_struct('>I6', page.offset) < mark_of(page.journal) then
      return redis.error_reply('STALE ' .. page.journal .. ' ' .. number(mark_of(page.journal)))
    end
  end
  -- Nothing was written under a claim that is merely held; before all, so that none is in the way of an earlier page.
  for _, page in ipairs(pages) do
    local own = load(page.id)
    if own and own[STATE] == 'held' then drop(page.id, own) end
  end
  local nonce, refused, seen = new_nonce(), {}, {}
  local most = tonumber(ARGV[5])
  raise_floor(most, 0)
  local replies = {nonce, clock(), seq, kept(), gone_above_floor(most, #pages), first, floor, groups()}
  for _, page in ipairs(pages) do replies[#replies + 1] = claim(page, nonce, refused, seen) end
  return replies
end

local function holds(nonce, id)
  local own = load(id)
  return own and holder(own) == nonce
end

local TAKEN = 'TAKEN another worker has taken a page over'

-- ARGV[4] nonce   ARGV[5] the observations of all pages held, joined   ARGV[6] most records to keep; -1: all
-- ARGV[7] the floor by which the pages were judged   ARGV[8..] observation and body of those that are unique, in order.
-- Returns now and the first seq; the others follow it.
function commands.number()
  local nonce, now, given = tonumber(ARGV[4]), clock(), seq + 1
  for at = 1, #ARGV[5], ID do
    if not holds(nonce, sub(ARGV[5], at, at + ID - 1)) then return redis.error_reply(TAKEN) end
  end
  for n = 8, #ARGV do
    local id = sub(ARGV[n], 1, ID)
    local own = load(id)
    seq = seq + 1
    own[STATE], own[SEQ], own[TIME], own[BODY] = 'numbered', seq, now, sub(ARGV[n], ID + 1)
    store(id, own)
  end
  call('HSET', meta, 'seq', number(seq))
  raise_floor(tonumber(ARGV[6]), tonumber(ARGV[7]))
  return {now, given}
end

-- ARGV[4] nonce   ARGV[5] what was written (see `untallied`)   ARGV[6..] observation and answer of each page held.
-- Returns first and floor.
function commands.finish()
  local nonce = tonumber(ARGV[4])
  for n = 6, #ARGV do
    if not holds(nonce, sub(ARGV[n], 1, ID)) then return redis.error_reply(TAKEN) end
  end
  local refused = untallied(ARGV[5])
  if refused then return refused end
  for n = 6, #ARGV do
    local id = sub(ARGV[n], 1, ID)
    local own = load(id)
    if own[STATE] == 'numbered' then documents = documents + 1 end
    write_journal(own[JOURNAL], own[OFFSET], id, sub(ARGV[n], ID + 1))
    drop(id, own)
  end
  call('HSET', meta, 'documents', number(documents))
  return {first, floor}
end
