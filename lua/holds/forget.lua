#!lua flags=allow-oom
--[[
  Removes the records of holds that have ended.

  KEYS[1]  holds   hash: owner, without the id of the client -> "<since when, ms> <lock>"

  ARGV[1]  owners  text: the owners, without the id of the client, with spaces between them

  Returns
    nil
  Publishes  nothing
  Repeating  changes nothing
]]
local holds = KEYS[1]
local owners = ARGV[1]

for owner in string.gmatch(owners, '%S+') do
  redis.call('hdel', holds, owner)
end
