#!lua flags=allow-oom
--[[
  Raises an existing hold to a given count. Never creates one: an owner that lost its hold has to acquire again.

  KEYS[1]  lock      hash: owner -> hold count

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  want      the target count, >= 2
  ARGV[3]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is

  Returns
    nil   granted
    -2    lost: this owner holds nothing
  Publishes  nothing
  Repeating  changes nothing: the count is a target. A copy that runs after the hold ended answers "lost"
]]
local lock = KEYS[1]
local owner, want, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local count = tonumber(redis.call('hget', lock, owner))
if not count then
  return -2
end
-- 0: the lease is longer already, or another program removed the expiry. If it was removed, the key gets an expiry again.
if redis.call('pexpire', lock, lease_ms, 'gt') == 0 then
  redis.call('pexpire', lock, lease_ms, 'nx')
end
if count < tonumber(want) then
  redis.call('hset', lock, owner, want)
end
return nil
