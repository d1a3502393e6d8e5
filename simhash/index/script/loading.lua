-- Loading --------------------------------------------------------------------------------------------------------
-- Store records as they were in another index, without judging them, in rising order of seq.
--
-- ARGV[3..]  'g' and a count (6): so many numbers whose records are gone; or 'r', seq (6), insertion time (6) and the page
--            as for a batch
-- Returns the last seq.

local function load_page(argument)
  local page = {argument = argument}
  local wanted
  wanted, now, page.kind, page.partition, page.offset, page.observation, page.body, page.at =
    unpack_struct('>I6I6c1I2c6c16I2c0', argument, 2)
  if wanted ~= seq + 1 then return redis.error_reply('ORDER ' .. text_of(seq) .. ' ' .. text_of(wanted)) end
  if page.kind == 'f' then
    page.places = {unpack_struct(layout.places, argument, page.at)}
    page.fingerprint = page.places[1]
    page.field = call('HGET', page.places[RECORDS], page.fingerprint) or nil
    insert(page)
  else
    local digest = sub(argument, page.at, page.at + DIGEST_BYTES - 1)
    local key = sub(argument, page.at + DIGEST_BYTES)
    local over = call('HGET', key, digest)   -- whose place was taken
    if over then
      documents = documents - 1
      leave_gap(seq_of(over))
    end
    call('HSET', key, digest, number_record(digest, page.body))
  end
end

local function load_gap(count)
  for _ = 1, count do
    seq, unwritten[#unwritten + 1] = seq + 1, ''
    leave_gap(seq)
  end
end

local failed
for n = FIRST_PAGE, #ARGV do
  if sub(ARGV[n], 1, 1) == 'g' then load_gap(unpack_struct('>I6', ARGV[n], 2)) else failed = load_page(ARGV[n]) end
  if failed then break end
end
write_log()
call('HSET', KEYS[1], 'seq', text_of(seq), 'documents', text_of(documents))
return failed or text_of(seq)
