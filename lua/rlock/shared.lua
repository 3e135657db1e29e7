-- Shared by the scripts of all locks that one owner holds alone: RLock, fair and fenced lock. It is inserted behind the
-- first line of each of them.

-- Called when another owner's field may be in the hash. Returns the answer of the script: left_ms if the hash is a lock of
-- this kind, else -3 or -5. Two fields are enough to see which, so a hash of any size costs the same.
local function in_the_way(lock, left_ms)
  local fields = redis.call('hrandfield', lock, '2', 'withvalues')
  if #fields == 2 and string.find(fields[1], '^.+:%d+$') and string.find(fields[2], '^%d+$') then
    return left_ms
  end
  local mode = redis.call('hget', lock, 'mode')
  if mode == 'read' or mode == 'write' then
    return -3
  end
  return -5
end

-- Ends a hold. nil: there was none. Else whether the key keeps somebody else's data: that stays as it is, and does not end
-- with the lease. What another kind of lock has there ends with its own.
local function end_hold(lock, owner)
  -- The key goes with its last field.
  if redis.call('hdel', lock, owner) == 0 then
    return nil
  end
  local is_data = redis.call('exists', lock) == 1 and in_the_way(lock, 0) == -5
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
