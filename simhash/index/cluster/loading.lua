-- Filling an index on a cluster with records that it has not judged, in rising order of seq. The claim slot's part: who
-- fills it, how far that came, and the plan of what is being written to the groups just now.
--
-- KEYS[1]  {ns:claim}:meta      KEYS[2]  {ns:claim}:gone
-- KEYS[3]  {ns:claim}:loading   HASH  writers: every nonce that may have written, 6 bytes each, the holder's last; plan: what is
--                                     being written: whoever comes next writes it once more
-- ARGV[1]  generation   ARGV[2]  command   ARGV[3..]  see each command; numbers in decimal

local call, pack = redis.call, struct.pack
local meta, gone_key, loading = KEYS[1], KEYS[2], KEYS[3]
local head = call('HMGET', meta, 'generation', 'seq')
if head[1] ~= ARGV[1] then return redis.error_reply('GENERATION ' .. tostring(head[1])) end

local commands = {}

-- Returns a nonce, every former one, and the plan that was not carried out ('': none).
function commands.take()
  local nonce = call('HINCRBY', meta, 'nonce', 1)
  local former = call('HGET', loading, 'writers') or ''
  call('HSET', loading, 'writers', former .. pack('>I6', nonce))
  return {nonce, former, call('HGET', loading, 'plan') or ''}
end

local function refused()
  local writers = call('HGET', loading, 'writers') or ''
  if string.sub(writers, -6) ~= pack('>I6', tonumber(ARGV[3])) then
    return redis.error_reply('TAKEN another program fills this index')
  end
end

-- ARGV[3] nonce   ARGV[4] seq: the first record there will be
function commands.begin()
  call('HSET', meta, 'seq', string.format('%.0f', tonumber(ARGV[4]) - 1), 'first', ARGV[4], 'floor', ARGV[4])
end

-- ARGV[3] nonce   ARGV[4] the number before those of the plan   ARGV[5] plan
function commands.plan()
  if head[2] ~= ARGV[4] then return redis.error_reply('ORDER ' .. head[2] .. ' ' .. ARGV[4]) end
  call('HSET', loading, 'plan', ARGV[5])
end

-- ARGV[3] nonce   ARGV[4] the last number   ARGV[5] how many records more there are   ARGV[6..] numbers without a record
function commands.done()
  for n = 6, #ARGV do call('ZADD', gone_key, ARGV[n], ARGV[n]) end
  call('HSET', meta, 'seq', ARGV[4])
  call('HINCRBY', meta, 'documents', ARGV[5])
  call('HDEL', loading, 'plan')
end

-- ARGV[3] nonce   ARGV[4] the generation that the index has from now on
function commands.release()
  call('HSET', meta, 'generation', ARGV[4])
  call('DEL', loading)
end

return ARGV[2] ~= 'take' and refused() or commands[ARGV[2]]()
