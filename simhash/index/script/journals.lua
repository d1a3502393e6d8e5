-- Journals -------------------------------------------------------------------------------------------------------

local function trim(key, mark)
  local done = {}
  for _, field in ipairs(call('HKEYS', key)) do
    if #field == 6 and unpack_struct('>I6', field) < mark then done[#done + 1] = field end
  end
  if #done > 0 then call('HDEL', key, unpack(done)) end
end

local function opened(row)
  local partition = {key = row[1], pages = {}, undecided = {}}
  local committed, mark = row[2], tonumber(call('HGET', row[1], 'mark') or '-1')
  if committed > mark then
    call('HSET', partition.key, 'mark', text_of(committed))
    trim(partition.key, committed)
    mark = committed
  end
  partition.mark = mark
  return partition
end

-- Sort the pages by partition; an error when one of them is below its partition's mark.
local function sort_pages(partitions, pages)
  for _, page in ipairs(pages) do
    if page.partition > 0 then
      local partition = partitions[page.partition]
      if unpack_struct('>I6', page.offset) < partition.mark then
        return redis.error_reply('STALE ' .. partition.key .. ' ' .. text_of(partition.mark))
      end
      table.insert(partition.pages, page)
    end
  end
end

-- Give the pages that are in the journal the answers that they got. What this call decides is not there yet: of two
-- deliveries of a page in one call, the later one knows the first.
local function read_journal(partition)
  if #partition.pages == 0 then return end
  local fields, firsts = {}, {}
  for i, page in ipairs(partition.pages) do fields[i] = page.offset end
  local found = call('HMGET', partition.key, unpack(fields))
  for i, page in ipairs(partition.pages) do
    local size = #page.observation
    if found[i] and sub(found[i], 1, size) == page.observation then
      page.answer = sub(found[i], size + 1)
    else
      local first = firsts[page.offset]
      if first and first.observation == page.observation then
        page.first = first
      else
        firsts[page.offset] = page
        table.insert(partition.undecided, page)
      end
    end
  end
end

local function write_journal(partition)
  local written = {}
  for _, page in ipairs(partition.undecided) do
    if page.answer then
      written[#written + 1] = page.offset
      written[#written + 1] = page.observation .. page.answer
    end
  end
  if #written > 0 then call('HSET', partition.key, unpack(written)) end
end
