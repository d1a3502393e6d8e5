-- Beside ---------------------------------------------------------------------------------------------------------
-- While an index is migrated (migration.py), its next generation lies beside it: what a call stores or removes, it stores
-- or removes there too, in the same step. Numbers, log, counters and journals are of both.

local beside   -- the next generation's layout; nil: there is none
if meta[8] then beside = cjson.decode(call('HGET', meta[8] .. ':meta', 'layout')) end

-- Make a change in the next generation.
local function in_next(change, ...)
  if not beside then return end
  local own = layout
  layout = beside
  change(...)
  layout = own
end
