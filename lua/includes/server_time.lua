-- Returns the server's time in milliseconds and in microseconds, both exact: below 2^53. And its seconds as text.
local function server_time()
  local time = redis.call('time')
  local now_us = time[1] * 1000000 + time[2]
  return math.floor(now_us / 1000), now_us, time[1]
end
