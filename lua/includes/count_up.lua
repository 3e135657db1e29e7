-- With  replies
-- Returns the next token of a counter as text. Otherwise returns CANNOT_COUNT if the counter is no number or cannot grow, or an error.
--
-- A counter that was lost or fell behind must not repeat a token: it continues from the server's clock, in microseconds.
local function count_up(counter, now_us)
  local count = redis.pcall('incr', counter)
  if type(count) == 'table' then
    local is_value = string.find(count.err, '^WRONGTYPE') or string.find(count.err, 'not an integer', 1, true)
    return (is_value or string.find(count.err, 'overflow', 1, true)) and CANNOT_COUNT or count
  end
  if count < now_us then
    local token = string.format('%.0f', now_us)
    redis.call('set', counter, token)
    return token
  end
  -- As text: a Lua number is exact only up to 2^53.
  return redis.call('get', counter)
end
