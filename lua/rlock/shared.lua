-- Shared by the scripts of the locks that one owner holds alone: RLock, fair lock and fenced lock. This file is inserted
-- after the first line of each script.

-- Called for a key that exists and is not held by the caller. Returns the reply of the script: left_ms if the hash is a lock
-- of this kind, otherwise -3 or -5. Two fields are enough to decide, so a hash of any size costs the same.
--
-- An owner is a UUID, a colon and a number, here and in Redisson: a hash with a field such as "item:1" is no lock.
local function in_the_way(lock, left_ms)
  local fields = redis.call('hrandfield', lock, '2', 'withvalues')
  if #fields == 2 and string.find(fields[1], '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(fields[2], '^%d+$') then
    return left_ms
  end
  local mode = redis.call('hget', lock, 'mode')
  if mode == 'read' or mode == 'write' then
    return -3
  end
  return -5
end

-- Ends a hold. Returns nil if there was none, otherwise whether the key keeps data of another program. That data stays, but
-- the key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
local function end_hold(lock, owner)
  -- Redis deletes the key with its last field.
  if redis.call('hdel', lock, owner) == 0 then
    return nil
  end
  -- pcall: while the slot of the lock moves, a server refuses every command on a key that it does not have.
  local is_data = redis.pcall('exists', lock) == 1 and in_the_way(lock, 0) == -5
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
