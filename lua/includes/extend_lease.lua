-- Makes the lease at least this long, and never shorter than it is.
local function extend_lease(lock, lease_ms)
  -- 0: the lease is longer already, or another program removed the expiry. If it was removed, the key gets an expiry again.
  if redis.call('pexpire', lock, lease_ms, 'gt') == 0 then
    redis.call('pexpire', lock, lease_ms, 'nx')
  end
end
