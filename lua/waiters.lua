#!lua flags=allow-oom
--[[
  Returns how many connections listen for the messages about a lock: those of its waiters.

  KEYS[1]  lock  of any type. It only says which server answers

  ARGV[1]  channel  where the waiters of this lock listen

  Returns
    >= 0  the number
  Repeating  changes nothing
]]
local lock = KEYS[1]
local channel = ARGV[1]

return redis.call('pubsub', 'numsub', channel)[2]
