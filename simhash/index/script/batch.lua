-- The batch ------------------------------------------------------------------------------------------------------

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
if stale then return stale end
for _, partition in ipairs(partitions) do read_journal(partition) end
expire(asked.expire_budget)
for i, page in ipairs(pages) do
  page.answer = page.answer or judge(page)
  answers[i] = page.answer
end
write_log()
for _, partition in ipairs(partitions) do write_journal(partition) end
call('HSET', KEYS[1], 'seq', text_of(seq), 'documents', text_of(documents))
return answers
