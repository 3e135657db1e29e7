-- With  needs_right_to_expire
-- Creates a lock with these fields and values.
local function create_hold(lock, lease_ms, ...)
  needs_right_to_expire(lock, lease_ms)
  redis.call('hset', lock, ...)
  redis.call('pexpire', lock, lease_ms)
end
