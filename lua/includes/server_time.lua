-- Returns the server's time in milliseconds, and in microseconds as text.
local function server_time()
  local time = redis.call('time')
  local now_us = time[1] .. string.sub('00000' .. time[2], -6)
  return math.floor(now_us / 1000), now_us
end
