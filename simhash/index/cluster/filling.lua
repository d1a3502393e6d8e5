-- Filling an index with records that it does not judge, in rising order of seq ------------------------------------------
-- {ns:claim}:loading holds writers: every nonce that may have written, 6 bytes each, the holder's last; and the plan: what is
-- being written to the groups just now. Whoever comes next writes it once more.

-- Returns a nonce, the groups, every former nonce, and the plan that was not carried out ('': none).
function commands.fill()
  local nonce = new_nonce()
  local former = call('HGET', loading, 'writers') or ''
  call('HSET', loading, 'writers', former .. pack('>I6', nonce))
  return {nonce, groups(), former, call('HGET', loading, 'plan') or ''}
end

local function another_fills()
  local writers = call('HGET', loading, 'writers') or ''
  if sub(writers, -6) ~= pack('>I6', tonumber(ARGV[4])) then
    return redis.error_reply('TAKEN another program fills this index')
  end
end

-- ARGV[4] nonce   ARGV[5] seq: the first record that there will be
function commands.fill_from()
  local refused = another_fills()
  if refused then return refused end
  call('HSET', meta, 'seq', number(tonumber(ARGV[5]) - 1), 'first', ARGV[5], 'floor', ARGV[5])
end

-- ARGV[4] nonce   ARGV[5] the number before those of the plan   ARGV[6] plan
function commands.plan()
  local refused = another_fills()
  if refused then return refused end
  if seq ~= tonumber(ARGV[5]) then return redis.error_reply('ORDER ' .. number(seq) .. ' ' .. ARGV[5]) end
  call('HSET', loading, 'plan', ARGV[6])
end

-- ARGV[4] nonce   ARGV[5] what was written   ARGV[6] the last number   ARGV[7] how many records more there are
-- ARGV[8..] numbers without a record
function commands.planned()
  local refused = another_fills() or untallied(ARGV[5])
  if refused then return refused end
  for n = 8, #ARGV do call('ZADD', gone_key, ARGV[n], ARGV[n]) end
  call('HSET', meta, 'seq', ARGV[6])
  call('HINCRBY', meta, 'documents', ARGV[7])
  call('HDEL', loading, 'plan')
end

-- ARGV[4] nonce   ARGV[5] the generation that the index has from now on
function commands.release()
  local refused = another_fills()
  if refused then return refused end
  call('HSET', meta, 'generation', ARGV[5])
  call('DEL', loading)
end
