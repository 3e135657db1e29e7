#!lua flags=allow-oom
--[[
  Renews the leases of many read holds in one command, and with them the leases of their locks.

  KEYS[2i-1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; one per hold. And the keys of the holds
  KEYS[2i]    channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]     lease_ms  milliseconds: each lease becomes at least this long, never shorter than it is; 0 and keep_ms 0: no lease changes
  ARGV[3i-1]  owner     text: the owner of the hold on KEYS[2i-1]
  ARGV[3i]    grant     number of the grant that the hold belongs to
  ARGV[3i+1]  keep_ms   milliseconds left of the hold's own lease. If Java's watchdog shortened this lease, it is restored

  With  lost_or_error replies tag_of read_write/hold_key read_write/grant_of read_write/keep_hold

  Returns
    list  for each hold:
      RENEWED
      LOST  this owner holds nothing there, or a later hold
      text  an error: nobody knows whether the hold is there. In a cluster, the server lacks the lock's slot, or a part of it
  Repeating  changes only the lease. A copy that runs after a hold ended does not touch its lock
]]
local lease_ms = ARGV[1]

local renewed = {}
for i = 1, #KEYS / 2 do
  local lock, channel = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, grant, keep_ms = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  -- pcall: if a key was replaced by another type or is under way to another server, the other holds must still be renewed. A server
  -- refuses the two keys together while their slot moves: then it can have the lock, and not a key of the hold.
  local value = redis.pcall('exists', lock, channel)
  value = type(value) == 'number' and redis.pcall('hexists', lock, owner) or value
  local tag = tag_of(lock)
  if value == 1 and grant_of(hold_key(tag, owner, 1)) == grant then
    local ms = tonumber(keep_ms) > tonumber(lease_ms) and keep_ms or lease_ms
    if ms ~= '0' then
      keep_hold(lock, tag, owner, ms)
      -- A server that tells a client of changes forgets the key when the client writes it, and knows it again after a read.
      redis.call('get', hold_key(tag, owner, 1))
    end
    renewed[i] = RENEWED
  else
    renewed[i] = lost_or_error(value)
  end
end
return renewed
