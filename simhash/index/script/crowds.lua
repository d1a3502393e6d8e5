-- Crowds ---------------------------------------------------------------------------------------------------------
-- A page that meets a crowd is judged in a call of its own. Before it the caller has read, in small steps, all that the page
-- meets; here is looked again at what it matches, and at what was stored meanwhile.
--
-- asked.read  {since, matches, last, compared}: matches: [fingerprint in hex, whether they met in a band only] of the records
--             up to number `since` that the page matches, those of the oldest first; last: the number of the last of them when
--             there were more, else -1; compared: how many stored fingerprints were looked at

local crowds = on_demand(function()
  local NEWER = 300   -- stored meanwhile; with more the caller is to read again

  local function meet(a, b)
    for i = 1, #layout.prefixes do
      local differing, a_bits, b_bits = 0, bits.permuted(i, a), bits.permuted(i, b)
      for n = 1, layout.prefixes[i] do
        if byte(a_bits, n) ~= byte(b_bits, n) then differing = differing + 1 end
      end
      if differing <= layout.radius then return true end
    end
    return false
  end

  local function consider_newer(page)
    local newer = seq - asked.read.since
    if newer > NEWER then return false end
    for _, logged in ipairs(newer > 0 and call('LRANGE', layout.log, -newer, -1) or {}) do
      local own = page.fingerprint
      local d = #logged == #own and not page.seen[logged] and bits.distance(own, logged, layout.reach)
      if d and d <= layout.reach then
        matching.consider(logged, stored.records_key(logged), d, page, not meet(own, logged) and matching.bands_of(page) or nil)
      end
    end
    return true
  end

  -- The answer, or nil: it has to be read again.
  local function judge_read(page)
    page.places = {unpack_struct(layout.places, page.argument, page.at)}
    page.fingerprint, page.seen = page.places[1], {}
    candidates = asked.read.compared
    page.field = matching.consider(page.fingerprint, page.places[RECORDS], 0, page) or nil
    for _, match in ipairs(asked.read.matches) do
      local near = string.gsub(match[1], '..', function(digits) return char(tonumber(digits, 16)) end)
      if not page.seen[near] then
        local d = bits.distance(page.fingerprint, near, layout.reach)
        matching.consider(near, stored.records_key(near), d, page, match[2] and matching.bands_of(page) or nil)
      end
    end
    if not own_seq then
      local last = asked.read.last
      if last >= 0 and not (oldest_seq and oldest_seq <= last) then return nil end
      local is_oldest = oldest_seq and oldest_seq <= asked.read.since   -- whatever was stored meanwhile is younger
      if not is_oldest and not consider_newer(page) then return nil end
    end
    local known = verdict()
    if known then return known end
    insert(page)
    return pack('>I4c1I6', candidates, 'u', seq)
  end

  return {judge_read = judge_read}
end)
