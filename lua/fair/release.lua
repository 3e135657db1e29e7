#!lua flags=allow-oom
--[[
  Lower an owner's hold on a fair lock to a given count; at none, free the lock and wake the first in the queue. Of an
  owner that waits, leave the queue. Also the undo of an attempt.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: who waits, in order
  KEYS[3]  scores   sorted set: who waits -> until when Java takes it for alive
  KEYS[4]  places   hash: who waits and is not Java's -> "<alive until, ms> <ticket, µs>"
  KEYS[5]  channel  what the channels of all waiters begin with

  ARGV[1]  owner         text: the owner of the hold, or of the place
  ARGV[2]  keep          holds that shall be left, >= 0; they keep the lease they have
  ARGV[3]  java_wait_ms  milliseconds: the longest that a Java client waits

  With  fair/shared.lua

  Returns
    2     released or left, but no waiter could be told: this user may not look for it, or not publish
    1     released, or left: this owner has nothing there any more
    0     lowered: this owner still holds it
    -2    lost: this owner held nothing, and did not wait
  Publishes  "0" on the channel of the first in the queue, if the lock is free and this owner had something there
  Repeating  changes nothing: the count is a target, and an owner id is never used again once it was 0
]]
local lock, queue, scores, places, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, keep, java_wait_ms = ARGV[1], ARGV[2], ARGV[3]

local count = tonumber(redis.call('hget', lock, owner))
if count and keep ~= '0' then
  if count > tonumber(keep) then
    redis.call('hset', lock, owner, keep)
  end
  return 0
end
if count then
  -- Who holds it has no place in the queue any more: that went with the grant.
  redis.call('del', lock)
else
  local had = redis.call('hdel', places, owner) + redis.call('lrem', queue, 0, owner)
  redis.call('zrem', scores, owner)
  if had == 0 then
    return -2
  end
  if redis.call('exists', lock) == 1 then
    return 1
  end
end
-- pcall, twice: the lock is free already, and must not be reported as held.
local is_known, first = pcall(head, queue, scores, places, nil, java_wait_ms)
if is_known and not first then
  return 1
end
local told = is_known and redis.pcall('publish', channel .. ':' .. first, '0')
return type(told) == 'number' and 1 or 2
