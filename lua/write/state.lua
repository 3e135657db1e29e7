#!lua flags=allow-oom
--[[
  Returns whether an owner holds the write lock.

  KEYS[1]  lock  hash: "mode" -> "read" or "write", owner -> hold count

  With  read/shared.lua

  Returns
    >= 0  held: milliseconds left of its lease
    -1    held, without expiry
    -2    no owner holds the write lock
    -3    the key is a lock that is not a read-write lock
    -5    the key is a hash that is no lock
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local mode = redis.call('hget', lock, 'mode')
if mode == 'write' then
  return written_ms(lock)
end
if mode == 'read' or not mode and redis.call('exists', lock) == 0 then
  return -2
end
return no_read_write_lock(lock, mode)
