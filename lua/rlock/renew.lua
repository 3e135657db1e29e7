#!lua flags=allow-oom
--[[
  Renews the leases of many holds in one command.

  KEYS[i]    lock      hash: owner -> hold count; one per hold

  ARGV[1]    lease_ms  milliseconds: each lease becomes at least this long, never shorter than it is; 0: no lease changes
  ARGV[1+i]  owner     text: the owner of the hold on KEYS[i]

  With  extend_lease replies

  Returns
    list  for each hold:
      RENEWED
      LOST  this owner holds nothing there
  Publishes  nothing
  Repeating  changes only the lease. A copy that runs after a hold ended does not touch its lock
]]
local lease_ms = ARGV[1]

local renewed = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[1 + i]
  -- pcall: if a key was replaced by another type, the other holds must still be renewed.
  if redis.pcall('hexists', lock, owner) == 1 then
    if lease_ms ~= '0' then
      extend_lease(lock, lease_ms)
    end
    renewed[i] = RENEWED
  else
    renewed[i] = LOST
  end
end
return renewed
