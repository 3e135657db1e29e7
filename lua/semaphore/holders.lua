#!lua flags=allow-oom
--[[
  Lists a part of the permits of a semaphore that are in use, in the order in which their leases end.

  KEYS[1]  permits  sorted set: id of a permit -> end of its lease

  ARGV[1]  after_ms  lists permits whose leases end later than this; 0: all

  With  replies server_time semaphore/clock_slack semaphore/endless

  Returns
    list  where the next part begins (0: there is none). Then two items for each permit: its id in hexadecimal digits; and the
          milliseconds until an acquire of this library removes it (0: the lease has ended), or
          NO_KNOWN_END  a permit of Java without a lease
  Repeating  changes nothing
]]
-- How many permits a part has, and all whose leases end together with the last one.
local MANY = 500

local permits = KEYS[1]
local after_ms = tonumber(ARGV[1])

local function hexadecimal(byte)
  return string.format('%02x', string.byte(byte))
end

local now_ms, all = server_time(), redis.call('zcard', permits)

-- Returns the place of the first permit whose lease ends later. A part cannot begin at a place that an earlier part
-- returned: releases and renewals between the parts move later permits forward.
local function place_after(ends_ms)
  local low, high = 0, all
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call('zrange', permits, middle, middle, 'withscores')[2]) > ends_ms then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local from = after_ms == 0 and 0 or place_after(after_ms)
local last = redis.call('zrange', permits, from + MANY - 1, from + MANY - 1, 'withscores')[2]
local behind = last and place_after(tonumber(last)) or all
local found = from < behind and redis.call('zrange', permits, from, behind - 1, 'withscores') or {}
local answer = { behind < all and last or '0' }
for i = 1, #found, 2 do
  local ends_ms = tonumber(found[i + 1])
  answer[i + 1] = string.gsub(found[i], '.', hexadecimal)
  answer[i + 2] = ends_ms < ENDLESS and math.max(ends_ms + CLOCK_SLACK_MS - now_ms, 0) or NO_KNOWN_END
end
return answer
