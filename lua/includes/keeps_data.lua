-- With  occupied_reply replies
-- Returns whether a key still holds data of another program after the last fields of a lock were removed from it. That data stays, but the
-- key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
local function keeps_data(lock)
  -- pcall: while the slot of the lock moves, a server refuses every command on a key that it does not have.
  local is_data = redis.pcall('exists', lock) == 1 and occupied_reply(lock, 0) == NOT_A_LOCK
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
