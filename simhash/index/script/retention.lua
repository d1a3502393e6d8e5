-- Retention ------------------------------------------------------------------------------------------------------
-- The log's last entry is that of the last seq given, and none is missing: the first one's seq follows from its length.

local gaps = call('LLEN', layout.log) - documents   -- entries of the log whose record was removed out of turn
local removed = 0                                   -- records that this call removes out of turn
local forgotten = 0                                 -- those that retention has removed in this call

local unwritten = {}

local function write_log()
  if #unwritten > 0 then call('RPUSH', layout.log, unpack(unwritten)) end
  unwritten = {}
end

-- Number a new record and log it.
local function number_record(field, body)
  seq, documents = seq + 1, documents + 1
  unwritten[#unwritten + 1] = field
  return pack('>I6I6', seq, now) .. body
end

-- The entry of this number stays in the log, and its record is removed out of turn.
local function leave_gap(number)
  gaps, removed = gaps + 1, removed + 1
  call('ZADD', layout.gone, text_of(number), text_of(number))
end

local removing = on_demand(function()
  -- The record of this number, by the name under which it is logged, and the others of that name; its record is nil when
  -- that was removed out of turn.
  local function entry_of(field, number)
    local entry = {field = field, seq = number, others = {}, has_fingerprint = #field ~= DIGEST_BYTES}
    entry.key = entry.has_fingerprint and stored.records_key(field) or stored.digest_key(field)
    for _, record in ipairs(records_in(call('HGET', entry.key, field))) do
      if seq_of(record) == number then entry.record = record else table.insert(entry.others, record) end
    end
    return entry
  end

  -- The log's first entry. All that was logged must be written.
  local function oldest_logged()
    local field = call('LINDEX', layout.log, 0)
    return field and entry_of(field, seq - call('LLEN', layout.log) + 1)
  end

  local function remove_member(key, score, member)
    if call('ZREM', key, member .. score) == 0 then call('ZREM', key, member) end
  end

  local function remove_members(fingerprint)
    for i = 1, #layout.prefixes do
      local own = bits.permuted(i, fingerprint)
      local prefix, member = layout.prefixes[i], bits.to_bytes(sub(own, layout.prefixes[i] + 1))
      local score = bits.number_of(sub(own, layout.bucket_bits + 1, prefix))
      remove_member(bits.table_of(i).key .. bits.bucket_of(own), text_of(score), member == '' and '\0' or member)
    end
  end

  local function remove_bands(entry)
    for i = 1, #layout.bands do
      local key, score = stored.band_of(entry.record, i)
      if key and not stored.shares_place(entry.others, i, key, score) then remove_member(key, text_of(score), entry.field) end
    end
  end

  -- Take a record out of its hash, and its members where it was the last of its fingerprint.
  local function take_out(entry)
    if entry.has_fingerprint then remove_bands(entry) end
    if #entry.others > 0 then
      call('HSET', entry.key, entry.field, field_of(entry.others))
    else
      call('HDEL', entry.key, entry.field)
      if entry.has_fingerprint then remove_members(entry.field) end
    end
  end

  local function take_out_if_there(field, number)
    local entry = entry_of(field, number)
    if entry.record then take_out(entry) end
  end

  local function remove(entry)
    documents = documents - 1
    take_out(entry)
    in_next(take_out_if_there, entry.field, entry.seq)
  end

  -- Amortised: for each page some records are removed, or many times as many gaps passed over.
  local GAPS_FOR_A_RECORD = 32

  -- Whether the oldest record is to be forgotten.
  local function is_over(record)
    return time_of(record) < oldest_live or asked.max_documents >= 0 and documents > asked.max_documents
  end

  -- Remove what is beyond its age or the count, oldest first, as far as `budget` goes.
  local function forget_oldest(budget)
    while budget > 0 do
      local entry = oldest_logged()
      if not entry or entry.record and not is_over(entry.record) then return end
      call('LPOP', layout.log)
      if entry.record then
        remove(entry)
        budget, forgotten = budget - 1, forgotten + 1
      else
        gaps = gaps - 1
        call('ZREM', layout.gone, text_of(entry.seq))
        budget = budget - 1 / GAPS_FOR_A_RECORD
      end
    end
  end

  return {entry_of = entry_of, remove = remove, forget_oldest = forget_oldest}
end)

local function forget_some(budget)
  if oldest_live < 0 and asked.max_documents < 0 then return end
  write_log()
  removing.forget_oldest(budget)
end

-- The number of the oldest record that is not too many.
local function oldest_kept()
  local from = seq - gaps - asked.max_documents + 1   -- were no number without a record below it
  local wanted, before = from, nil
  while gaps > 0 and wanted ~= before do
    before = wanted
    wanted = from + call('ZCOUNT', layout.gone, '-inf', '(' .. text_of(before))
  end
  return wanted
end

-- What retention has not come to yet is passed over all the same.
local function is_live(record)
  if time_of(record) < oldest_live then return false end
  if asked.max_documents < 0 or documents <= asked.max_documents then return true end
  return seq_of(record) >= oldest_kept()
end
