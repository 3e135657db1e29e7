#!lua flags=allow-oom
--[[
  Lists a part of the permits of a semaphore that are in use, in the order in which their leases end.

  KEYS[1]  permits  sorted set: id of a permit -> end of its lease

  ARGV[1]  from      the place of the first permit to list, from 0
  ARGV[2]  count     how many permits to list
  ARGV[3]  slack_ms  milliseconds for which Java's clocks can be ahead of the server's

  With  replies server_time semaphore/endless

  Returns
    list  two items for each permit: its id in hexadecimal digits; and the milliseconds until an acquire of this library removes it
          (0: the lease has ended), or
          NO_KNOWN_END  a permit of Java without a lease
  Publishes  nothing
  Repeating  changes nothing
]]
local permits = KEYS[1]
local from, count, slack_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function hexadecimal(byte)
  return string.format('%02x', string.byte(byte))
end

local now_ms = server_time()
local answer = redis.call('zrange', permits, from, from + count - 1, 'withscores')
for i = 1, #answer, 2 do
  local ends_ms = tonumber(answer[i + 1])
  answer[i] = string.gsub(answer[i], '.', hexadecimal)
  answer[i + 1] = ends_ms < ENDLESS and math.max(ends_ms + slack_ms - now_ms, 0) or NO_KNOWN_END
end
return answer
