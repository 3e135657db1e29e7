#!lua
--[[
  Acquires a fair lock that is free, for an owner that holds nothing on it and is first in the queue. Otherwise queues. The
  only script of the fair lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: the waiters, in order
  KEYS[3]  scores   sorted set: waiter -> until when Java considers it alive, ms
  KEYS[4]  places   hash: waiter that is not Java's -> "<alive until, ms> <Java clients before it>"
  KEYS[5]  tickets  sorted set: waiter that is not Java's -> when it queued, µs
  KEYS[6]  channel  prefix of the channel of each waiter

  ARGV[1]  owner         text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms      milliseconds, > 0
  ARGV[3]  allowance_ms  milliseconds for which a waiter counts as alive; 0: do not queue
  ARGV[4]  java_wait_ms  milliseconds: the longest wait of a Java client

  With  rlock/shared.lua fair/shared.lua

  Returns
    nil   granted
    >= 0  held by another owner, and this waiter is the next: milliseconds left of the holder's lease
    -1    other waiters are in front, or the lock is held without expiry
    -3    the key is a read-write lock
    -4    queued: this owner had no place in the queue, and has one now
    -5    the key is a hash that is no lock
    -6    dead waiters were removed, and there may be more: attempt again
  Publishes  "0" on the channel of the first waiter, if the lock is free and that waiter is another owner
  Repeating  a copy that finds its own hold answers "granted" and adds no hold; one that finds itself in the queue
             keeps its place; one that runs after both were released creates an orphan, which the sender releases until no
             copy can arrive
]]
local lock, queue, scores, places, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
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
  left_ms = in_the_way(lock, left_ms)
  if left_ms < -1 then
    return left_ms
  end
end

local place = redis.call('hget', places, owner)
local first, now, now_us, is_cut
-- Otherwise the lock is free and nobody waits, so the clock is not needed.
if place or not is_free or redis.call('exists', queue) == 1 then
  now, now_us = server_time()
  if place then
    -- Before dead waiters are removed: this waiter is alive, however late it is.
    redis.call('hset', places, owner, record(now, allowance_ms, java_before(place)))
  end
  first, now, is_cut = head(queue, scores, places, tickets, now, java_wait_ms)
  if is_cut then
    return -6
  end
  if place and first ~= owner and not redis.call('zscore', tickets, owner) then
    place = nil -- another program removed its ticket
  end
end
if is_free and (not first or first == owner) then
  -- Changes nothing without a key. A user who may not set an expiry fails here, and not between the next two lines, which
  -- would leave a lock without expiry.
  redis.call('pexpire', lock, lease_ms)
  redis.call('hset', lock, owner, '1')
  redis.call('pexpire', lock, lease_ms)
  if first then
    redis.call('lpop', queue)
    forget(scores, places, tickets, { owner })
    leave_to_java(queue, scores, tickets)
  end
  return nil
end

local is_new = false
if allowance_ms > 0 and not place then
  local score = now + allowance_ms + SLACK_MS
  if redis.call('zadd', scores, score, owner) == 0 then
    -- It has a score, so it still has its place, although its record was removed.
    redis.call('zadd', tickets, 'nx', now_us, owner)
    redis.call('hset', places, owner, record(now, allowance_ms, 0))
  else
    local last, java = redis.call('zrange', tickets, '-1', '-1', 'withscores'), {}
    local before, tail = 0, nil
    if first then
      tail = redis.call('lindex', queue, '-1')
      local nearest = redis.call('hget', places, tail)
      if not nearest then
        nearest, java = beyond_java(queue, places, -1, -1)
      end
      before = #java + (nearest and java_before(nearest) or 0)
    end
    if before > 0 then
      -- Each Java client in front lowers this score at most once, when it is granted the lock or leaves.
      score = math.max(score, tonumber(redis.call('zscore', scores, tail) or 0)) + #java * java_wait_ms
      redis.call('zadd', scores, score, owner)
    end
    -- Tickets state the order, so they grow whatever the clock does.
    local ticket = math.max(now_us, (tonumber(last[2]) or 0) + 1)
    redis.call('zadd', tickets, string.format('%.0f', ticket), owner)
    redis.call('hset', places, owner, record(now, allowance_ms, before))
    local keep_ms = score - now + alive_ms(allowance_ms)
    if redis.call('rpush', queue, owner) == 1 then
      redis.call('pexpire', queue, keep_ms)
      redis.call('pexpire', scores, keep_ms)
    elseif #java > 0 then
      redis.call('persist', queue)
      redis.call('persist', scores)
    end
    if not last[1] then
      redis.call('pexpire', places, keep_ms)
      redis.call('pexpire', tickets, keep_ms)
    end
    is_new = true
    first = first or owner
  end
end

if is_free then
  redis.pcall('publish', channel .. ':' .. first, '0')
end
if is_new then
  return -4
end
return not is_free and first == owner and left_ms or -1
