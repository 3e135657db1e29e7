#!lua flags=allow-oom
--[[
  Returns whether a lock that one owner holds alone is held.

  KEYS[1]  lock  hash: owner -> hold count

  With  occupied_reply replies

  Returns
    >= 0          held: milliseconds left of its lease
    NO_KNOWN_END  held, without expiry
    FREE          no owner holds the lock
    OTHER_KIND    the key is a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
  Repeating  changes nothing
]]
local lock = KEYS[1]

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
  return FREE
end
return occupied_reply(lock, left_ms)
