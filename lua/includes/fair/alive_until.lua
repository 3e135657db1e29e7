-- Returns until when the waiter with this record counts as alive.
local function alive_until(record)
  return tonumber(string.match(record, '^%d+'))
end
