#!lua
--[[
  Acquires the write lock for an owner that holds nothing on it, if the lock is free or all readers are dead. The only
  script that creates a write hold.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of readers' holds
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]  writer    text: "<client uuid>:<n>:write", never used for an earlier hold
  ARGV[2]  lease_ms  milliseconds, > 0

  With  read/shared.lua

  Returns
    nil   granted
    >= 0  held by others: milliseconds for which it stays held, unless a message says otherwise
    -1    the same, and it has no expiry
    -3    the key is a lock that is not a read-write lock
    -5    the key is a hash that is no lock, or has a field that is not a holder
  Publishes  nothing
  Repeating  a copy that finds its own hold answers "granted" and adds no hold. A copy that runs after the hold was
             released creates an orphan. The sender releases this orphan until no copy can arrive
]]
local lock, channel = KEYS[1], KEYS[2]
local writer, lease_ms = ARGV[1], ARGV[2]

local mode = redis.call('hget', lock, 'mode')
if mode == 'write' then
  if redis.call('hexists', lock, writer) == 1 then
    redis.call('pexpire', lock, lease_ms, 'gt')
    return nil
  end
  return written_ms(lock)
end
if mode == 'read' then
  if redis.call('hlen', lock) == 1 then
    return -5
  end
  local reader_ms = other_reader_ms(lock)
  if reader_ms then
    return reader_ms
  end
  redis.call('del', lock)
elseif mode or redis.call('exists', lock) == 1 then
  return no_read_write_lock(lock, mode)
end
-- Without a key, this changes nothing, see rlock/acquire.
redis.call('pexpire', lock, lease_ms)
redis.call('hset', lock, 'mode', 'write', writer, '1')
redis.call('pexpire', lock, lease_ms)
return nil
