-- Another generation beside this one ----------------------------------------------------------------------------------
-- While meta has `next`, what the tags of its groups start with, who writes to the groups of this generation writes to those
-- as well; the entries of both follow each other in {ns:claim}:groups. {ns:claim}:next holds the next one's spec, and
--   keys           as meta's `next`
--   carried, last  the last number that lies in both, of those from before; the last that there was
--   carrier        the nonce of who carries records just now, from number `begin` to number `end`
--   former         carriers that did not come to their end, in decimal, a space behind each

-- In meta, `reserved` is what the tags of a generation's groups are to start with, and `retired` those whose groups are to be
-- removed: no name is used twice, so whoever wakes up late writes to nothing that is in use.

-- ARGV[4] the index's name
-- Returns what the tags of another generation's groups are to start with; '': there is one, or groups are to be removed.
function commands.reserve()
  if head[10] or call('HEXISTS', meta, 'reserved') + call('HEXISTS', meta, 'retired') > 0 then return '' end
  local keys = ARGV[4] .. '~' .. number(new_nonce())
  call('HSET', meta, 'reserved', keys)
  return keys
end

-- ARGV[4] what was reserved   ARGV[5] its groups, as in {ns:claim}:groups   ARGV[6..] its spec: field, value
-- Returns 1; 0: it was retired meanwhile.
function commands.begin()
  if call('HGET', meta, 'reserved') ~= ARGV[4] then return 0 end
  call('HDEL', meta, 'reserved')
  call('HSET', next_key, 'keys', ARGV[4], 'carried', number(first - 1), 'last', number(seq), unpack(ARGV, 6))
  call('HSET', meta, 'next', ARGV[4])
  call('SET', groups_key, groups() .. ARGV[5])
  return 1
end

-- ARGV[4] what has been removed; '': nothing
-- Returns what is to be removed; '': nothing.
function commands.sweep()
  if call('HGET', meta, 'retired') == ARGV[4] then call('HDEL', meta, 'retired') end
  local reserved = call('HGET', meta, 'reserved')
  if reserved and call('HSETNX', meta, 'retired', reserved) == 1 then call('HDEL', meta, 'reserved') end
  return call('HGET', meta, 'retired') or ''
end

local function given_up()
  if not head[10] then return redis.error_reply('TAKEN this migration was given up') end
end

-- ARGV[4] how many at most
-- Returns nonce, the groups, the carriers that did not come to their end, the last number before these, the last of these, the
-- last of all; then those numbers that no claim is on: who holds one writes to both, or removes from both, as soon as he ends.
function commands.carry()
  local refused = given_up()
  if refused then return refused end
  local own = call('HMGET', next_key, 'carried', 'last', 'carrier', 'former')
  local former = (own[4] or '') .. (own[3] and own[3] .. ' ' or '')
  local last, nonce = tonumber(own[2]), new_nonce()
  local begin = math.max(tonumber(own[1]) + 1, first)
  local ending = math.min(last, begin + tonumber(ARGV[4]) - 1)
  call('HSET', next_key, 'carrier', nonce, 'begin', number(begin), 'end', number(ending), 'former', former)
  local found, claimed = {nonce, groups(), former, begin - 1, ending, last}, claimed_numbers()
  for each = begin, ending do
    if not claimed[each] then found[#found + 1] = each end
  end
  return found
end

-- ARGV[4] nonce   ARGV[5] what was written (see `untallied`)
function commands.carried()
  local own = call('HMGET', next_key, 'carrier', 'end')
  if own[1] ~= ARGV[4] then return redis.error_reply('TAKEN another program carries this migration on') end
  local refused = untallied(ARGV[5])
  if refused then return refused end
  call('HSET', next_key, 'carried', own[2])
  call('HDEL', next_key, 'carrier', 'begin', 'end', 'former')
end

-- ARGV[4..] field and value of what meta says from now on
-- Returns the claims that do not meet others by the next generation's tables, as they were made before it was begun: they must
-- be brought to their end first. None: it is done.
function commands.switch()
  local refused = given_up()
  if refused then return refused end
  local own, made_before = call('HMGET', next_key, 'carried', 'last'), {}
  if own[1] ~= own[2] then return redis.error_reply('ORDER not all is carried') end
  local all = call('HGETALL', claims_key)
  for n = 1, #all, 2 do
    local claim = cmsgpack.unpack(all[n + 1])
    if claim[STATE] ~= 'removal' and claim[BESIDE] ~= beside then made_before[#made_before + 1] = all[n] end
  end
  if #made_before > 0 then return made_before end
  call('HSET', meta, unpack(ARGV, 4))
  call('HDEL', meta, 'next')
  call('DEL', next_key)
  local known = groups()
  call('SET', groups_key, sub(known, #known / 2 + 1))
  return {}
end

-- Give the next generation up; 1: there was one.
function commands.abandon()
  if not head[10] then return 0 end
  local known = groups()
  call('HSET', meta, 'retired', head[10])
  call('HDEL', meta, 'next')
  call('DEL', next_key)
  call('SET', groups_key, sub(known, 1, #known / 2))
  return 1
end
