#!lua flags=allow-oom
--[[
  Returns how many permits of a semaphore are available.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease

  ARGV[1]  total  how many permits the semaphore has, if its key does not exist or the set of permits was lost

  With  replies server_time semaphore/available_of semaphore/clock_slack semaphore/expired_among

  Returns
    list        the number of available permits, with those whose leases have ended; and the total
    NOT_A_LOCK  the key holds text that is no number
  Repeating  changes nothing
]]
-- How many permits one command reads.
local MANY = 100

local semaphore, permits = KEYS[1], KEYS[2]
local total = tonumber(ARGV[1])

local available = available_of(semaphore)
if available == false then
  return NOT_A_LOCK
end
local in_use, expired = redis.call('zcard', permits), 0
local before_ms = server_time() - CLOCK_SLACK_MS
repeat
  local part = redis.call('zrange', permits, expired, expired + MANY - 1, 'withscores')
  local found = expired_among(part, before_ms)
  expired = expired + found
until found < MANY
if not available or available <= 0 and in_use == 0 then
  available = total - in_use
end
return { available + expired, available + in_use }
