#!lua flags=allow-oom
--[[
  Renews the leases of many holds in one command.

  KEYS[i]    lock      hash: owner -> hold count; one per hold

  ARGV[1]    lease_ms  milliseconds: each lease becomes at least this long, never shorter than it is; 0: no lease changes
  ARGV[1+i]  owner     text: the owner of the hold on KEYS[i]

  With  extend_lease lost_or_error replies

  Returns
    list  for each hold:
      RENEWED
      LOST  this owner holds nothing there
      text  an error: nobody knows whether the hold is there. In a cluster, the server lacks the lock's slot, or a part of it
  Repeating  changes only the lease. A copy that runs after a hold ended does not touch its lock
]]
local lease_ms = ARGV[1]

local renewed = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[1 + i]
  -- pcall: if a key was replaced by another type or is under way to another server, the other holds must still be renewed.
  local found = redis.pcall('hexists', lock, owner)
  if found == 1 then
    if lease_ms ~= '0' then
      extend_lease(lock, lease_ms)
      -- A server that tells a client of changes forgets the key when the client writes it, and knows it again after a read.
      redis.call('hexists', lock, owner)
    end
    renewed[i] = RENEWED
  else
    renewed[i] = lost_or_error(found)
  end
end
return renewed
