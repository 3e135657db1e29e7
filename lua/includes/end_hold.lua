-- With  occupied_reply replies
-- Ends a hold. Returns nil if there was none, otherwise whether the key keeps data of another program. That data stays, but
-- the key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
local function end_hold(lock, owner)
  -- Redis deletes the key with its last field.
  if redis.call('hdel', lock, owner) == 0 then
    return nil
  end
  -- pcall: while the slot of the lock moves, a server refuses every command on a key that it does not have.
  local is_data = redis.pcall('exists', lock) == 1 and occupied_reply(lock, 0) == NOT_A_LOCK
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
