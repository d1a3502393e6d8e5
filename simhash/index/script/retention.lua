-- Retention ------------------------------------------------------------------------------------------------------
-- The log's last entry is that of the last seq given, and none is missing: the first one's seq follows from its length.

local DIGEST_BYTES = 17

local function digest_key(digest) return layout.digests .. bucket_of(to_bits(sub(digest, 2, 5))) end

-- The log's first entry; its record is nil when that was removed out of turn. All that was logged must be written.
local function oldest_logged()
  local field = call('LINDEX', layout.log, 0)
  if not field then return nil end
  local entry = {field = field, seq = seq - call('LLEN', layout.log) + 1, others = {}}
  entry.has_fingerprint = #field ~= DIGEST_BYTES
  entry.key = entry.has_fingerprint and records_key(field) or digest_key(field)
  for _, record in ipairs(records_in(call('HGET', entry.key, field))) do
    if seq_of(record) == entry.seq then entry.record = record else table.insert(entry.others, record) end
  end
  return entry
end

local function remove_members(fingerprint)
  for i = 1, #layout.prefixes do
    local bits = permuted(i, fingerprint)
    local prefix, member = layout.prefixes[i], to_bytes(sub(bits, layout.prefixes[i] + 1))
    local score = number_of(sub(bits, layout.bucket_bits + 1, prefix))
    remove_member(tables[i].key .. bucket_of(bits), text_of(score), member == '' and '\0' or member)
  end
end

local function remove_bands(entry)
  for i = 1, #layout.bands do
    local key, score = band_of(entry.record, i)
    if key and not shares_place(entry.others, i, key, score) then remove_member(key, text_of(score), entry.field) end
  end
end

local function remove(entry)
  call('LPOP', layout.log)
  if not entry.record then return end
  documents = documents - 1
  if entry.has_fingerprint then remove_bands(entry) end
  if #entry.others > 0 then
    call('HSET', entry.key, entry.field, field_of(entry.others))
  else
    call('HDEL', entry.key, entry.field)
    if entry.has_fingerprint then remove_members(entry.field) end
  end
end

-- Remove records beyond their age, at most so many.
local function expire(budget)
  while oldest_live >= 0 and budget > 0 do
    local entry = oldest_logged()
    if not entry or entry.record and time_of(entry.record) >= oldest_live then return end
    remove(entry)
    budget = budget - 1
  end
end

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

local function bound_documents()
  if asked.max_documents < 0 or documents <= asked.max_documents then return end
  write_log()
  while documents > asked.max_documents do
    local entry = oldest_logged()
    if not entry then return end
    remove(entry)
  end
end
