-- With  replies read_write/other_kind_reply
-- Removes these fields, the last of a lock that is free now. Returns whether the key keeps data of another program. That
-- data stays, but the key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
local function free_lock(lock, ...)
  redis.call('hdel', lock, 'mode', ...)
  local is_data = redis.call('exists', lock) == 1 and other_kind_reply(lock) == NOT_A_LOCK
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
