#!lua flags=allow-oom
--[[
  Returns whether an owner holds the write lock.

  KEYS[1]  lock  hash: "mode" -> "read" or "write", owner -> hold count

  With  occupied_reply replies read_write/written_ms

  Returns
    >= 0          held: milliseconds left of its lease
    NO_KNOWN_END  held, without expiry
    FREE          no owner holds the write lock
    OTHER_KIND    the key is a lock that is not a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
  Repeating  changes nothing
]]
local lock = KEYS[1]

local mode = redis.call('hget', lock, 'mode')
if mode == 'write' then
  return written_ms(lock)
end
if mode == 'read' or redis.call('exists', lock) == 0 then
  return FREE
end
return occupied_reply(lock, OTHER_KIND)
