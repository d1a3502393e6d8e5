-- The batch ------------------------------------------------------------------------------------------------------

-- What takes as long as comparing so many candidates: a page that meets few, or one that is forgotten.
local probes = #layout.prefixes + #layout.bands
for _, prefix in ipairs(layout.prefixes) do probes = probes + layout.radius * prefix end
local PAGE_WORK = (20 + 3 * probes) * (beside and 2 or 1)

-- The answer; nil when the page meets a crowd.
local function judge(page)
  own_seq, oldest_seq, oldest_record, oldest_distance = nil, nil, nil, nil
  candidates, crowded = 0, false
  if page.decided then return judge_decided(page) end
  if page.kind ~= 'f' then return judge_digest(page) end
  return (asked.read and crowds.judge_read or judge_fingerprint)(page)
end

local pages, partitions, answers = {}, {}, {}
local last_page = #ARGV - #asked.decided
for n = FIRST_PAGE, last_page do
  local kind, partition, offset, observation, body, at = unpack_struct('>c1I2c6c16I2c0', ARGV[n])
  -- With all that it will ever have: a table that grows field by field is laid out anew each time.
  pages[n - FIRST_PAGE + 1] = {argument = ARGV[n], kind = kind, partition = partition, offset = offset,
    observation = observation, body = body, at = at, places = nil, fingerprint = nil, seen = nil, field = nil,
    verifier = nil, decided = nil, first = nil, answer = nil}
end
for i, number in ipairs(asked.decided) do pages[number].decided = ARGV[last_page + i] end
for i, row in ipairs(asked.partitions) do partitions[i] = opened(row) end
local stale = sort_pages(partitions, pages)
if stale then
  call('HSET', KEYS[1], 'cut', asked.name)
  return stale
end
for _, partition in ipairs(partitions) do read_journal(partition) end
local work = 0
for i, page in ipairs(pages) do
  local before = forgotten
  candidates = 0
  page.answer = page.answer or page.first and page.first.answer or judge(page)
  answers[i] = page.answer or pack('>I4c1', candidates, 'c')
  forget_some(asked.expire_per_page)
  work = work + PAGE_WORK * (1 + forgotten - before) + candidates
  most_candidates = math.max(most_candidates, candidates)
  if not page.answer or work > asked.work and i < #pages then
    call('HSET', KEYS[1], 'cut', asked.name)
    call('HINCRBY', KEYS[1], page.answer and 'cuts' or 'crowds', 1)
    break
  end
end
write_log()
for _, partition in ipairs(partitions) do write_journal(partition) end
call('HSET', KEYS[1], 'seq', text_of(seq), 'documents', text_of(documents), 'most_candidates', text_of(most_candidates))
if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
answers[#answers + 1] = taken()
return answers
