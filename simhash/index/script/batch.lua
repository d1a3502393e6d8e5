-- The batch ------------------------------------------------------------------------------------------------------

local PAGE_WORK = 50   -- a page that meets few candidates, or one that is forgotten, takes as long as comparing so many

local pages, partitions, answers = {}, {}, {}
local last_page = #ARGV - #asked.decided
for n = FIRST_PAGE, last_page do
  local page = {argument = ARGV[n]}
  page.kind, page.partition, page.offset, page.observation, page.body, page.at =
    unpack_struct('>c1I2c6c16I2c0', ARGV[n])
  pages[n - FIRST_PAGE + 1] = page
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
  page.answer = page.answer or judge(page)
  answers[i] = page.answer
  forget_some(asked.expire_per_page)
  work = work + PAGE_WORK * (1 + forgotten - before) + candidates
  most_candidates = math.max(most_candidates, candidates)
  if work > asked.work and i < #pages then
    call('HSET', KEYS[1], 'cut', asked.name)
    call('HINCRBY', KEYS[1], 'cuts', 1)
    break
  end
end
write_log()
for _, partition in ipairs(partitions) do write_journal(partition) end
call('HSET', KEYS[1], 'seq', text_of(seq), 'documents', text_of(documents), 'most_candidates', text_of(most_candidates))
if removed > 0 then call('HINCRBY', KEYS[1], 'removed', removed) end
return answers
