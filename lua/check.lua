#!lua
--[[
  Checks whether this user has the right to run commands on a key or a channel. Runs none of them.

  KEYS[1]  key       a key of the slot that is asked: some services refuse scripts without one. Without it, as for a user without
                     the right to it, does the same

  ARGV[1]  name      text: the key or the channel. It is not in KEYS: a user without the right to it could not ask
  ARGV[2]  commands  text: their names, with spaces between them

  Returns
    list  the names of the commands that this user has no right to run
  Repeating  changes nothing
]]
local key = KEYS[1]
local name, commands = ARGV[1], ARGV[2]

-- Newer servers refuse this question if the command does not take so many words. The question has as few words as
-- possible, because further words could count as keys.
local function is_allowed(command)
  for _, words in ipairs({ { name }, {}, { name, '' } }) do
    local has_answered, answer = pcall(function() return redis.acl_check_cmd(command, unpack(words)) end)
    if has_answered then
      return answer
    end
  end
  return redis.acl_check_cmd(command, name, '', '')
end

local refused = {}
for command in string.gmatch(commands, '%S+') do
  if not is_allowed(command) then
    refused[#refused + 1] = command
  end
end
return refused
