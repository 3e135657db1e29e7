#!lua flags=allow-oom
--[[
  Returns whether a lock that one owner holds alone is held.

  KEYS[1]  lock  hash: owner -> hold count

  With  rlock/shared.lua

  Returns
    >= 0  held: milliseconds left of its lease
    -1    held, without expiry
    -2    free
    -3    the key is a read-write lock
    -5    the key is a hash that is no lock
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
  return -2
end
return in_the_way(lock, left_ms)
