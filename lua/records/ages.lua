#!lua flags=allow-oom
--[[
  Tells for how long owners of a client have held locks, if the client recorded that.

  KEYS[1]  records  hash: owner, without the id of the client -> "<since when, ms> <what>"

  ARGV[1]  owners   text: the owners, without the id of the client, with spaces between them

  With  server_time

  Returns
    list  for each owner: milliseconds as text; empty: there is no record
  Publishes  nothing
  Repeating  changes nothing
]]
local records = KEYS[1]
local owners = ARGV[1]

local now, ages = server_time(), {}
for owner in string.gmatch(owners, '%S+') do
  local since = string.match(redis.call('hget', records, owner) or '', '^%d+')
  ages[#ages + 1] = since and string.format('%.0f', math.max(now - tonumber(since), 0)) or ''
end
return ages
