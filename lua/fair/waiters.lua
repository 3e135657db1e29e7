#!lua flags=allow-oom
--[[
  Returns how many waiters are in the queue of a fair lock.

  KEYS[1]  queue  list: the waiters, in order

  Returns
    >= 0  the number
  Repeating  changes nothing
]]
local queue = KEYS[1]

return redis.call('llen', queue)
