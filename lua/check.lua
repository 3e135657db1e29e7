#!lua
--[[
  Checks whether this user has the right to run commands on a key or a channel. Runs none of them.

  ARGV[1]  name      text: the key or the channel. It is not in KEYS: a user without the right to it could not ask
  ARGV[2]  commands  text: their names, with spaces between them

  Returns
    list  the names of the commands that this user has no right to run
  Publishes  nothing
  Repeating  changes nothing
]]
local name, commands = ARGV[1], ARGV[2]

local refused = {}
for command in string.gmatch(commands, '%S+') do
  if not redis.acl_check_cmd(command, name) then
    refused[#refused + 1] = command
  end
end
return refused
