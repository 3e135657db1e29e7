-- Creates a lock with these fields and values.
--
-- Without a key, the first PEXPIRE changes nothing. If the user has no right to set an expiry, the script fails there. If it failed
-- after HSET, it would leave a lock without expiry.
local function create_hold(lock, lease_ms, ...)
  redis.call('pexpire', lock, lease_ms)
  redis.call('hset', lock, ...)
  redis.call('pexpire', lock, lease_ms)
end
