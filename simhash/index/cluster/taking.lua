-- Claims that change hands, and claims on records that are being removed ---------------------------------------------

-- The numbers that a claim is on.
local function claimed_numbers()
  local claimed, all = {}, call('HVALS', claims_key)
  for n = 1, #all do claimed[cmsgpack.unpack(all[n])[SEQ]] = true end
  return claimed
end

-- ARGV[4] what to take beside claims of the journals given: letters 'r', removals; 'o', pages of no journal
-- ARGV[5..] ids to take. Held claims are dropped; the others change hands and are returned:
-- nonce, the groups, then for each its id, state, journal, fingerprint (or tagged digest) and what is in `resumed`.
function commands.recover()
  local removals, others = string.find(ARGV[4], 'r'), string.find(ARGV[4], 'o')
  local ids, journals = {}, {}
  for n = 5, #ARGV do ids[ARGV[n]] = true end
  for n = FIRST_JOURNAL, #KEYS do journals[KEYS[n]] = true end
  local nonce = new_nonce()
  local taken, all = {nonce, groups()}, call('HGETALL', claims_key)
  for n = 1, #all, 2 do
    local id, own = all[n], cmsgpack.unpack(all[n + 1])
    local removal = own[STATE] == 'removal'
    local chosen = ids[id] or journals[own[JOURNAL]] or (removal and removals)
    chosen = chosen or (not removal and own[JOURNAL] == '' and others)
    if chosen and own[STATE] == 'held' then
      drop(id, own)
    elseif chosen then
      taken[#taken + 1] = {id, own[STATE], own[JOURNAL], own[FINGERPRINT], resumed(own)}
      taken_over(id, own, nonce)
    end
  end
  return taken
end

-- Who may be carrying this record to the next generation just now: nonces (migrating.lua).
local function carriers_of(removed)
  local own = call('HMGET', next_key, 'former', 'carrier', 'begin', 'end')
  local covered = own[2] and removed >= tonumber(own[3]) and removed <= tonumber(own[4])
  local carriers = {}
  for nonce in string.gmatch((own[1] or '') .. (covered and own[2] or ''), '%d+') do carriers[#carriers + 1] = tonumber(nonce) end
  return carriers
end

-- ARGV[4..] what is to be removed: seq 6, the key by which it meets, fingerprint or tagged digest. Returns nonce, the groups, then one reply
-- each: 'r' and former writers (6 bytes each): go on; 'g': gone already; 'b': in the way of a page that is being judged.
function commands.retire()
  local nonce = new_nonce()
  local replies = {nonce, groups()}
  for n = 4, #ARGV do
    local gone, key = unpack_struct('>I6', ARGV[n]), sub(ARGV[n], 7, 6 + KEY)
    local id = 'removal of' .. pack('>I6', gone)
    local own = load(id)
    local reply
    if gone < first or call('ZSCORE', gone_key, number(gone)) then
      reply = 'g'
    elseif own then
      reply = 'r' .. packed(own[WRITERS])
      taken_over(id, own, nonce)
    else
      local found = call('HMGET', meet_key, key)
      local blocked = false
      for at = 1, #(found[1] or ''), ID do
        local other = load(sub(found[1], at, at + ID - 1))
        blocked = blocked or (other and holder(other) ~= nonce) or other and other[STATE] ~= 'removal'
      end
      if blocked then
        reply = 'b'
      else
        enter(id, {key}, found)
        local writers = carriers_of(gone)
        reply = 'r' .. packed(writers)
        writers[#writers + 1] = nonce
        store(id, {'removal', writers, '', '', sub(ARGV[n], 7 + KEY), '', {key}, gone, 0, ''})
      end
    end
    replies[#replies + 1] = reply
  end
  return replies
end

-- ARGV[4] nonce   ARGV[5] what was written (see `untallied`)   ARGV[6..] seq (6 bytes) of what has been removed. Those that are the oldest move `first` on.
function commands.retired()
  local nonce = tonumber(ARGV[4])
  for n = 6, #ARGV do
    if not holds(nonce, 'removal of' .. ARGV[n]) then return redis.error_reply(TAKEN) end
  end
  local refused = untallied(ARGV[5])
  if refused then return refused end
  for n = 6, #ARGV do
    local id, gone = 'removal of' .. ARGV[n], unpack_struct('>I6', ARGV[n])
    drop(id, load(id))
    documents = documents - 1
    call('ZADD', gone_key, number(gone), number(gone))
  end
  while first <= seq and call('ZREM', gone_key, number(first)) == 1 do first = first + 1 end
  call('HSET', meta, 'documents', number(documents), 'first', number(first))
  return {first, floor}
end
