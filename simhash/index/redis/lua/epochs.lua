-- Compare the index with what was committed, and the server with the one that the index was last used on.
--
-- KEYS[1]  ns:meta
-- ARGV[1]  'present': hold the watermarks against it, 'accept': take the index as it is
-- ARGV[2..]  watermarks: epoch, seq (of each the largest number that was told under that epoch)
--
-- An epoch is one server's time with the index: '<its begin, ms, 12 hex digits>.<replication id>'. A server takes a new
-- replication id when it starts and when it is promoted. In ns:meta:
--   epoch    the present one; empty: pages are missing, nobody may go on
--   epochs  all of them, oldest first, each with the seq at which it began: 'epoch seq epoch seq ...'
--   earlier    'ms seq': watermarks of unknown epochs that began by then hold up to that seq (a rebuild, an acceptance)
--   missing    the watermark of this index's own past that did not hold
-- Returns the epoch, seq, and the replication id that was left behind ('': none).

local ANY_SEQ = '281474976710655' -- no seq is larger: it has 6 bytes
local call = redis.call
local meta = call('HMGET', KEYS[1], 'generation', 'seq', 'epoch', 'epochs', 'earlier', 'missing')
if not meta[1] then return redis.error_reply('GENERATION false') end
local seq, epochs = tonumber(meta[2]), {}
for name, from in string.gmatch(meta[4] or '', '(%S+) (%d+)') do
  epochs[#epochs + 1] = {name = name, from = tonumber(from)}
end

local time = call('TIME')
local now = string.format('%012x', time[1] * 1000 + math.floor(time[2] / 1000))
local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
local last = meta[3] and string.sub(meta[3], 14) or ''

local function begin(before)
  local epoch = now .. '.' .. id
  call('HSET', KEYS[1], 'epoch', epoch, 'epochs', before .. epoch .. ' ' .. meta[2])
  return {epoch, seq, last}
end

-- The largest seq that an epoch may have given and the index still have, and whether the epoch is the index's own.
local function bound(epoch)
  for i, each in ipairs(epochs) do
    if each.name == epoch then return epochs[i + 1] and epochs[i + 1].from or seq, true end
  end
  local before, most = string.match(meta[5] or '', '(%d+) (%d+)')
  if before and tonumber(string.sub(epoch, 1, 12), 16) <= tonumber(before) then return tonumber(most), false end
  return -1, false
end

local function lost(watermark, most) return redis.error_reply('LOST ' .. watermark .. ' ' .. string.format('%.0f', most)) end

if ARGV[1] == 'accept' then
  call('HDEL', KEYS[1], 'missing')
  call('HSET', KEYS[1], 'earlier', string.format('%.0f', tonumber(now, 16)) .. ' ' .. ANY_SEQ)
  return begin('')
end
if meta[6] then return lost(meta[6], math.max(0, (bound(string.match(meta[6], '%S+'))))) end
for i = 2, #ARGV, 2 do
  local most, own = bound(ARGV[i])
  if tonumber(ARGV[i + 1]) > most then
    local watermark = ARGV[i] .. ' ' .. ARGV[i + 1]
    if own then call('HSET', KEYS[1], 'missing', watermark, 'epoch', '') end
    return lost(watermark, math.max(most, 0))
  end
end
if last == id then return {meta[3], seq, ''} end
return begin(meta[4] and meta[4] .. ' ' or '')
