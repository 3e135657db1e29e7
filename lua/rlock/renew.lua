#!lua flags=allow-oom
--[[
  Renews the leases of many holds in one command.

  KEYS[i]    lock      hash: owner -> hold count; one per hold

  ARGV[1]    lease_ms  milliseconds: each lease becomes at least this long, never shorter than it is; 0: no lease changes
  ARGV[1+i]  owner     text: the owner of the hold on KEYS[i]

  Returns
    list  per hold 1 (renewed) or 0 (lost: this owner holds nothing there)
  Publishes  nothing
  Repeating  changes only the lease. A copy that runs after a hold ended does not touch its lock
]]
local lease_ms = ARGV[1]

local renewed = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[1 + i]
  -- pcall: if a key was replaced by another type, the other holds must still be renewed.
  if redis.pcall('hexists', lock, owner) == 1 then
    -- 0: the lease is longer already, or another program removed the expiry. If it was removed, the key gets an expiry
    -- again.
    if lease_ms ~= '0' and redis.call('pexpire', lock, lease_ms, 'gt') == 0 then
      redis.call('pexpire', lock, lease_ms, 'nx')
    end
    renewed[i] = 1
  else
    renewed[i] = 0
  end
end
return renewed
