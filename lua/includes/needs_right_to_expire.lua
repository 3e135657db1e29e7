-- Fails if the user has no right to set an expiry, before the script has changed anything. A script that failed after it had created a
-- hash would leave a lock without expiry.
local function needs_right_to_expire(lock, lease_ms)
  if not redis.acl_check_cmd('pexpire', lock, lease_ms) then
    -- The server refuses this command, and its error says which right is missing.
    redis.call('pexpire', lock, lease_ms)
  end
end
