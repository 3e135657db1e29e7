#!lua flags=allow-oom
--[[
  Removes what an owner announced, and tells those who listen that its hold has ended.

  KEYS[1]  announcement  string: "<owner> <identity> <text>"

  ARGV[1]  owner  text: the owner

  Returns
    nil
  Publishes  "0" on the channel with the name of announcement
  Repeating  leaves what a later holder announces
]]
local announcement = KEYS[1]
local owner = ARGV[1]

local said = redis.call('get', announcement)
if said and string.sub(said, 1, #owner + 1) == owner .. ' ' then
  redis.call('del', announcement)
end
redis.pcall('publish', announcement, '0')
