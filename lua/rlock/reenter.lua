#!lua flags=allow-oom
--[[
  Raises an existing hold to a given count. Never creates one: an owner that lost its hold has to acquire again.

  KEYS[1]  lock      hash: owner -> hold count

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  want      the target count, >= 2
  ARGV[3]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is

  With  extend_lease replies

  Returns
    nil   granted
    LOST  this owner holds nothing
  Publishes  nothing
  Repeating  changes nothing: the count is a target. A copy that runs after the hold ended answers "lost"
]]
local lock = KEYS[1]
local owner, want, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local count = tonumber(redis.call('hget', lock, owner))
if not count then
  return LOST
end
extend_lease(lock, lease_ms)
if count < tonumber(want) then
  redis.call('hset', lock, owner, want)
end
return nil
