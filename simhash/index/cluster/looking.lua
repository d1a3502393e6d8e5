-- What there is, for operators; and the call itself -----------------------------------------------------------------

-- Every claim: id, state, journal, offset, fingerprint, seq, nonce.
function commands.list()
  local found, all = {}, call('HGETALL', claims_key)
  for n = 1, #all, 2 do
    local own = cmsgpack.unpack(all[n + 1])
    found[#found + 1] = {all[n], own[STATE], own[JOURNAL], own[OFFSET], own[FINGERPRINT], own[SEQ], holder(own)}
  end
  return found
end

-- The groups, as they are known here.
function commands.groups() return groups() end

-- ARGV[4..] groups that were looked at: number, what was known of it, what holds from now on. Returns 1; 0: something else
-- is known by now, and nothing was changed.
function commands.settle()
  local known, changed = groups(), {}
  for n = 4, #ARGV do
    local group = byte(ARGV[n])
    if known == '' then known = string.rep('\0', GROUP * unpack_struct('>I2', ARGV[n], 2 + 2 * GROUP)) end
    if in_group(known, group, 1, GROUP) ~= sub(ARGV[n], 2, 1 + GROUP) then return 0 end
    changed[group] = sub(ARGV[n], 2 + GROUP, 1 + 2 * GROUP)
  end
  write_groups(known, changed)
  return 1
end

-- What pages have met: ARGV[4] the most candidates of one, ARGV[5] how many met a crowd, ARGV[6] calls that were cut.
function commands.met()
  local most = call('HGET', meta, 'most_candidates')
  if tonumber(ARGV[4]) > tonumber(most or '0') then call('HSET', meta, 'most_candidates', ARGV[4]) end
  if ARGV[5] ~= '0' then call('HINCRBY', meta, 'crowds', ARGV[5]) end
  if ARGV[6] ~= '0' then call('HINCRBY', meta, 'cuts', ARGV[6]) end
  return 1
end

-- Write something: replicas that have it have all that was written before.
function commands.touch() return new_nonce() end

-- ARGV[4..] seqs. Returns those whose records must be there in full: numbered, not gone, and under no claim.
function commands.standing()
  local claimed, found = claimed_numbers(), {}
  for n = 4, #ARGV do
    local wanted = tonumber(ARGV[n])
    local there = wanted >= first and wanted <= seq and not claimed[wanted] and not call('ZSCORE', gone_key, ARGV[n])
    if there then found[#found + 1] = wanted end
  end
  return found
end

-- Returns first and seq; how many records the counter says, and how many there should be; then, in hex, the claims that are not found under
-- a key by which they meet, and what is found there that is no claim.
function commands.audit()
  local claims, should = {}, stored()
  local all, meeting = call('HGETALL', claims_key), call('HGETALL', meet_key)
  for n = 1, #all, 2 do
    claims[all[n]] = cmsgpack.unpack(all[n + 1])
    if claims[all[n]][STATE] == 'numbered' then should = should - 1 end
  end
  local met, wrong = {}, {first, seq, documents, should}
  for n = 1, #meeting, 2 do
    for at = 1, #meeting[n + 1], ID do
      local id = sub(meeting[n + 1], at, at + ID - 1)
      met[id .. meeting[n]] = true
      if not claims[id] then wrong[#wrong + 1] = id end
    end
  end
  for id, claim in pairs(claims) do
    for _, key in ipairs(claim[MEETING]) do
      if not met[id .. key] then wrong[#wrong + 1] = id end
    end
  end
  return wrong
end

return commands[ARGV[2]]()
