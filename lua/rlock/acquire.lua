#!lua
--[[
  Acquires a free lock for an owner that holds nothing on it. The only script of the RLock that creates a hold.

  KEYS[1]  lock      hash: owner -> hold count

  ARGV[1]  owner     text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms  milliseconds, > 0

  With  rlock/shared.lua

  Returns
    nil   granted
    >= 0  held by another owner: milliseconds left of its lease
    -1    held by another owner, without expiry
    -3    the key is a read-write lock
    -5    the key is a hash that is no lock
  Publishes  nothing
  Repeating  a copy that finds its own hold answers "granted" and adds no hold. A copy that runs after the hold was
             released creates an orphan. The sender releases this orphan until no copy can arrive
]]
local lock = KEYS[1]
local owner, lease_ms = ARGV[1], ARGV[2]

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
  -- Without a key, this changes nothing. A user without the right to set an expiry fails here. A failure between the next
  -- two lines would leave a lock without expiry.
  redis.call('pexpire', lock, lease_ms)
  redis.call('hset', lock, owner, '1')
  redis.call('pexpire', lock, lease_ms)
  return nil
end
if redis.call('hexists', lock, owner) == 1 then
  if left_ms < tonumber(lease_ms) then
    redis.call('pexpire', lock, lease_ms)
  end
  return nil
end
return in_the_way(lock, left_ms)
