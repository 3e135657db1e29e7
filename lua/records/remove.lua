#!lua flags=allow-oom
--[[
  Removes the records of holds or waits that have ended.

  KEYS[1]  records  hash: owner, without the id of the client -> "<since when, ms> <what>"

  ARGV[1]  owners   text: the owners, without the id of the client, with spaces between them

  Returns
    nil
  Publishes  nothing
  Repeating  changes nothing
]]
local records = KEYS[1]
local owners = ARGV[1]

for owner in string.gmatch(owners, '%S+') do
  redis.call('hdel', records, owner)
end
