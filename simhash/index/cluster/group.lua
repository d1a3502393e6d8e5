-- One group of an index's keys on a cluster: all keys of a group lie in one slot. Two calls: read what lies in buckets and
-- records; write for a holder of claims, unless it has been barred. `placement.py` makes the arguments. And a third, to see
-- whether the group still has all that was finished there: `ledger.py` has the argument.
--
-- KEYS[1]  {group}:barred   ZSET  nonces that may not write here any more: another worker has taken their work over
-- KEYS[2]  {group}:written  STRING  how many calls have written here
-- KEYS[3..]                 the key of each operation
-- ARGV[1]  '': read; else the writer's nonce   ARGV[2]  nonces to bar first, 6 bytes each
-- ARGV[3]  how many calls must have written here   ARGV[4]  how this server's replication id must begin; '': anyhow
-- ARGV[5..]  operations:
--   reading  'z' length 1, low, high   members of a bucket between two ends, '' behind them when there are more:
--           a call gives `MOST_MEMBERS`, whatever it is asked for        'h' field   a hash's value
--           'm' member   whether it is in a bucket
--   writing  'a' member / 'd' member   add to, delete from a bucket
--            'p' length 1, field, record / 'q' length 1, field, seq 6   put a record among those of a field / drop it
--            's' length 1, field, value / 'u' field / 'v' length 1, field, seq 6   set, delete; delete if of that seq
--            'w' length 1, field, record   set, if there is none of a later seq
-- Returns what each operation gives; a writing call, behind it, how many calls have written here.
-- To look: KEYS[1] {group}:written   ARGV[1] '?' or '!'   ARGV[2] ''   ARGV[3], ARGV[4] as above. '?' returns how the server's id
-- begins and the count, counted up if it begins otherwise than ARGV[4]; '!' counts up, and refuses as a writing call does.
-- A field's records stand behind two bytes of length each; a record begins with its seq.

local call, sub, unpack_struct, pack = redis.call, string.sub, struct.unpack, struct.pack
local BARRED_KEPT = 1000
local MOST_MEMBERS = 1000   -- about 1 ms
local SERVER_DIGITS = 16
local barred, written_key = KEYS[1], KEYS[2]

local function server() return string.match(call('INFO', 'replication'), 'master_replid:(%x+)'):sub(1, SERVER_DIGITS) end

local function refused(written)
  if written < tonumber(ARGV[3]) then return redis.error_reply('UNSETTLED calls that wrote here are missing') end
  if ARGV[4] ~= '' and server() ~= ARGV[4] then return redis.error_reply('UNSETTLED another server has this group now') end
end

if ARGV[1] == '?' or ARGV[1] == '!' then
  written_key = KEYS[1]
  local written = tonumber(call('GET', written_key) or '0')
  if ARGV[1] == '!' then return refused(written) or call('INCR', written_key) end
  local now = server()
  if written >= tonumber(ARGV[3]) and now ~= ARGV[4] then written = call('INCR', written_key) end
  return {now, written}
end
local lacking = refused(tonumber(call('GET', written_key) or '0'))
if lacking then return lacking end

local function split(argument)
  local head, at = unpack_struct('>Bc0', argument, 2)
  return head, sub(argument, at)
end

-- The records of a field but for that of one seq.
local function without(field, seq)
  local kept, at, record = {}, 1, nil
  while at <= #field do
    record, at = unpack_struct('>I2c0', field, at)
    if sub(record, 1, 6) ~= seq then kept[#kept + 1] = pack('>I2', #record) .. record end
  end
  return table.concat(kept)
end

local operations = {}
local left = MOST_MEMBERS

function operations.z(key, argument)
  if left == 0 then return {''} end
  local low, high = split(argument)
  local found = call('ZRANGEBYLEX', key, '[' .. low, '[' .. high, 'LIMIT', 0, left + 1)
  if #found > left then found[#found], left = '', 0 else left = left - #found end
  return found
end

function operations.h(key, argument) return call('HGET', key, sub(argument, 2)) end

function operations.m(key, argument) return call('ZSCORE', key, sub(argument, 2)) and 1 or 0 end

function operations.a(key, argument) return call('ZADD', key, 0, sub(argument, 2)) end

function operations.d(key, argument) return call('ZREM', key, sub(argument, 2)) end

function operations.p(key, argument)
  local field, record = split(argument)
  local others = without(call('HGET', key, field) or '', sub(record, 1, 6))
  return call('HSET', key, field, others .. pack('>I2', #record) .. record)
end

function operations.q(key, argument)
  local field, seq = split(argument)
  local others = without(call('HGET', key, field) or '', seq)
  if #others > 0 then return call('HSET', key, field, others) end
  return call('HDEL', key, field)
end

function operations.s(key, argument)
  local field, value = split(argument)
  return call('HSET', key, field, value)
end

-- A short page's place is taken by who comes after its age; its own record may be carried here later than that.
function operations.w(key, argument)
  local field, record = split(argument)
  local there = call('HGET', key, field)
  if there and unpack_struct('>I6', there) > unpack_struct('>I6', record) then return 0 end
  return call('HSET', key, field, record)
end

function operations.u(key, argument) return call('HDEL', key, sub(argument, 2)) end

function operations.v(key, argument)
  local field, seq = split(argument)
  local record = call('HGET', key, field)
  return record and sub(record, 1, 6) == seq and call('HDEL', key, field) or 0
end

-- Nonces rise. Of barred ones the highest are kept; what is lower than all of these is barred with them.
local function is_barred(nonce)
  if call('ZSCORE', barred, nonce) then return true end
  if call('ZCARD', barred) < BARRED_KEPT then return false end
  return tonumber(nonce) < tonumber(call('ZRANGE', barred, 0, 0)[1])
end

if ARGV[1] ~= '' then
  for at = 1, #ARGV[2], 6 do
    local nonce = string.format('%.0f', unpack_struct('>I6', ARGV[2], at))
    call('ZADD', barred, nonce, nonce)
  end
  local excess = call('ZCARD', barred) - BARRED_KEPT
  if excess > 0 then call('ZREMRANGEBYRANK', barred, 0, excess - 1) end
  if is_barred(ARGV[1]) then return redis.error_reply('BARRED another worker has taken this work over') end
end
local results = {}
for n = 5, #ARGV do results[n - 4] = operations[sub(ARGV[n], 1, 1)](KEYS[n - 2], ARGV[n]) end
if ARGV[1] ~= '' then results[#results + 1] = call('INCR', written_key) end
return results
