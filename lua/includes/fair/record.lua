-- The record of a waiter that is not Java's: until when it counts as alive, and how many Java clients queued before it.

-- Returns for how long a waiter counts as alive: the allowance, and time for a heartbeat that is late.
local function alive_ms(allowance_ms)
  return allowance_ms + math.floor(allowance_ms / 3)
end

local function new_record(now, allowance_ms, java_before)
  return string.format('%.0f %.0f', now + alive_ms(allowance_ms), java_before)
end

local function java_before(record)
  return tonumber(string.match(record, ' (%d+)$'))
end
