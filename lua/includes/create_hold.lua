-- Creates a lock with these fields and values. Fails before it has changed anything if the user has no right to set an expiry: a script
-- that failed after it had created the hash would leave a lock without expiry.
local function create_hold(lock, lease_ms, ...)
  if not redis.acl_check_cmd('pexpire', lock, lease_ms) then
    -- The server refuses this command, and its error says which right is missing.
    redis.call('pexpire', lock, lease_ms)
  end
  redis.call('hset', lock, ...)
  redis.call('pexpire', lock, lease_ms)
end
