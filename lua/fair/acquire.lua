#!lua
--[[
  Take a fair lock that is free, for an owner that holds nothing on it and is first in the queue; or queue. The only
  script of the fair lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: who waits, in order
  KEYS[3]  scores   sorted set: who waits -> until when Java takes it for alive
  KEYS[4]  places   hash: who waits and is not Java's -> "<alive until, ms> <ticket, µs>"
  KEYS[5]  channel  what the channels of all waiters begin with

  ARGV[1]  owner         text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms      milliseconds, > 0
  ARGV[3]  allowance_ms  milliseconds for which a waiter counts as alive; 0: does not queue
  ARGV[4]  java_wait_ms  milliseconds: the longest that a Java client waits

  With  fair/shared.lua

  Returns
    nil   granted
    >= 0  held by another owner, and this one is next: milliseconds left of its lease
    -1    others are before this one, or the lock is held without expiry
    -3    the name is in use as a read-write lock
    -4    it did not stand in the queue before, and does now
  Publishes  "0" on the channel of the first in the queue, if the lock is free and that is somebody else
  Repeating  a copy that finds its own hold answers "granted" and adds no hold, one that finds itself in the queue
             keeps its place; one that runs after both were given up creates an orphan, which the sender goes on
             releasing until none can come any more
]]
local lock, queue, scores, places, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease_ms, allowance_ms, java_wait_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local left_ms = redis.call('pttl', lock)
local is_free = left_ms == -2
if not is_free then
  if redis.call('hexists', lock, owner) == 1 then
    if left_ms < tonumber(lease_ms) then
      redis.call('pexpire', lock, lease_ms)
    end
    return nil
  end
  -- Only a read-write lock's hash has this field.
  if redis.call('hexists', lock, 'mode') == 1 then
    return -3
  end
end

local place = redis.call('hget', places, owner)
local first, now, now_us
-- Else nobody waits, and the clock is not asked.
if place or not is_free or redis.call('exists', queue) == 1 then
  now, now_us = server_time()
  if place then
    -- Before the dead are dropped: it is alive, however late it is.
    record(places, owner, ticket_of(place), now, allowance_ms)
    if not redis.call('lpos', queue, owner) then
      put_back(queue, places, owner, ticket_of(place))
    end
  end
  first = head(queue, scores, places, now, java_wait_ms)
end
if is_free and (not first or first == owner) then
  -- Without a key it changes nothing. A user who may not do it is stopped here, and not between the next two lines,
  -- where a lock without expiry would be left.
  redis.call('pexpire', lock, lease_ms)
  redis.call('hset', lock, owner, '1')
  redis.call('pexpire', lock, lease_ms)
  if first then
    redis.call('lrem', queue, 0, owner)
    redis.call('zrem', scores, owner)
    redis.call('hdel', places, owner)
  end
  return nil
end

local is_new = false
if allowance_ms > 0 then
  if not place then
    if not first or not redis.call('lpos', queue, owner) then
      redis.call('rpush', queue, owner)
      is_new = true
    end
    record(places, owner, now_us, now, allowance_ms)
  end
  raise_scores(first and queue, scores, places, { [owner] = true }, now, allowance_ms, java_wait_ms)
  first = first or owner
end

if is_free then
  redis.pcall('publish', channel .. ':' .. first, '0')
end
if is_new then
  return -4
end
return not is_free and first == owner and left_ms or -1
