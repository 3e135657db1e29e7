-- With  read_write/hold_key
-- Returns the milliseconds until the last key of a reader's holds ends, at least 1. -2: there is none.
local function longest(tag, reader, count)
  -- A key without expiry counts as if it had this one. Only a command of another program can remove an expiry.
  local TEN_YEARS_MS = 315360000000
  local longest_ms = -2
  for number = 1, count do
    local left_ms = redis.call('pttl', hold_key(tag, reader, number))
    if left_ms == -1 then
      longest_ms = TEN_YEARS_MS
    elseif left_ms >= 0 then
      longest_ms = math.max(longest_ms, left_ms, 1)
    end
  end
  return longest_ms
end
