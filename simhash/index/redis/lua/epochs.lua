-- Compare the index with what was committed, and the server with the one that the index was last used on.
--
-- KEYS[1]  ns:meta
-- ARGV[1]  'present': hold the receipts against it, 'accept': take the index as it is
-- ARGV[2..]  receipts: history, seq (of each the largest number that was told under that history)
--
-- A history is one server's time with the index: '<its begin, ms, 12 hex digits>.<replication id>'. A server takes a new
-- replication id when it starts and when it is promoted. In ns:meta:
--   history    the present one; empty: pages are missing, nobody may go on
--   histories  all of them, oldest first, each with the seq at which it began: 'history seq history seq ...'
--   earlier    'ms seq': receipts of unknown histories that began by then hold up to that seq (a rebuild, an acceptance)
--   missing    the receipt of this index's own past that did not hold
-- Returns the history, seq, and the replication id that was left behind ('': none).

local ANY_SEQ = '281474976710655' -- no seq is larger: it has 6 bytes
local call = redis.call
local meta = call('HMGET', KEYS[1], 'generation', 'seq', 'history', 'histories', 'earlier', 'missing')
if not meta[1] then return redis.error_reply('GENERATION false') end
local seq, histories = tonumber(meta[2]), {}
for name, from in string.gmatch(meta[4] or '', '(%S+) (%d+)') do
  histories[#histories + 1] = {name = name, from = tonumber(from)}
end

local time = call('TIME')
local now = string.format('%012x', time[1] * 1000 + math.floor(time[2] / 1000))
local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
local last = meta[3] and string.sub(meta[3], 14) or ''

local function begin(before)
  local history = now .. '.' .. id
  call('HSET', KEYS[1], 'history', history, 'histories', before .. history .. ' ' .. meta[2])
  return {history, seq, last}
end

-- The largest seq that a history may have given and the index still have, and whether the history is the index's own.
local function bound(history)
  for i, each in ipairs(histories) do
    if each.name == history then return histories[i + 1] and histories[i + 1].from or seq, true end
  end
  local before, most = string.match(meta[5] or '', '(%d+) (%d+)')
  if before and tonumber(string.sub(history, 1, 12), 16) <= tonumber(before) then return tonumber(most), false end
  return -1, false
end

local function lost(receipt, most) return redis.error_reply('LOST ' .. receipt .. ' ' .. string.format('%.0f', most)) end

if ARGV[1] == 'accept' then
  call('HDEL', KEYS[1], 'missing')
  call('HSET', KEYS[1], 'earlier', string.format('%.0f', tonumber(now, 16)) .. ' ' .. ANY_SEQ)
  return begin('')
end
if meta[6] then return lost(meta[6], math.max(0, (bound(string.match(meta[6], '%S+'))))) end
for i = 2, #ARGV, 2 do
  local most, own = bound(ARGV[i])
  if tonumber(ARGV[i + 1]) > most then
    local receipt = ARGV[i] .. ' ' .. ARGV[i + 1]
    if own then call('HSET', KEYS[1], 'missing', receipt, 'history', '') end
    return lost(receipt, math.max(most, 0))
  end
end
if last == id then return {meta[3], seq, ''} end
return begin(meta[4] and meta[4] .. ' ' or '')
