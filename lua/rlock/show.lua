#!lua flags=allow-oom
--[[
  Shows the present hold count of an owner after a re-entry or an inner release, and makes the lease longer. Never creates a hold: an
  owner that lost its hold has to acquire again.

  KEYS[1]  lock      hash: owner -> hold count

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  count     the hold count, >= 1. Nothing relies on it
  ARGV[3]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is

  With  extend_lease replies

  Returns
    nil   shown
    LOST  this owner holds nothing
  Repeating  shows the same count again. A copy that runs late can show an earlier count. After the hold ended it answers "lost"
]]
local lock = KEYS[1]
local owner, count, lease_ms = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
  return LOST
end
extend_lease(lock, lease_ms)
redis.call('hset', lock, owner, count)
return nil
