#!lua flags=allow-oom
--[[
  Everything a lock's hash says, whatever kind of lock it is.

  KEYS[1]  lock  hash: owner -> hold count, and for a read-write lock "mode"

  Returns
    list  milliseconds left of the lease (-1: no expiry, -2: the lock is free), then field, value, field, value …
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local answer = redis.call('hgetall', lock)
table.insert(answer, 1, redis.call('pttl', lock))
return answer
