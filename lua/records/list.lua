#!lua flags=allow-oom
--[[
  Lists the records of a client.

  KEYS[1]  records  hash: owner, without the id of the client -> "<since when, ms> <what>"

  With  server_time

  Returns
    list  three items for each record: the owner, milliseconds since then as text, and what
  Publishes  nothing
  Repeating  changes nothing
]]
local records = KEYS[1]

local now, answer = server_time(), {}
local found = redis.call('hgetall', records)
for i = 1, #found, 2 do
  local since, what = string.match(found[i + 1], '^(%d+) (.*)$')
  if since then
    local row = #answer
    answer[row + 1], answer[row + 2] = found[i], string.format('%.0f', math.max(now - tonumber(since), 0))
    answer[row + 3] = what
  end
end
return answer
