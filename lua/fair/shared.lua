-- Shared by the scripts of a fair lock. This file is inserted after the first line of each script.
--
-- The queue is Redisson's list, with a score for each waiter, by which Java judges whether the waiter is alive. A waiter
-- that is not Java's also has a record, which says whether it is alive, and a ticket, which states its position. Scripts
-- work at the ends of the queue, so their cost does not grow with the length of the queue. The exception is LREM, for a
-- waiter that leaves from the middle, and for repairs.

-- When a Java client is granted the lock, Java lowers all scores. So the scores of our waiters are at least this much later
-- than now.
local SLACK_MS = 60000

-- The list and the scores expire this long after the latest score of our waiters. Java adds waiters and does not renew the
-- keys, so this is far longer than any Java client waits.
local KEEP_MS = 86400000

-- One script removes or puts back at most CHUNKS times CHUNK waiters, so that it does not block the server.
local CHUNK, CHUNKS = 100, 20

-- Returns the server's time in milliseconds, and in microseconds as text.
local function server_time()
  local time = redis.call('time')
  local now_us = time[1] .. string.sub('00000' .. time[2], -6)
  return math.floor(now_us / 1000), now_us
end

-- Returns for how long a waiter counts as alive: the allowance, and time for a heartbeat that is late.
local function alive_ms(allowance_ms)
  return allowance_ms + math.floor(allowance_ms / 3)
end

-- Returns the record of a waiter: until when it counts as alive, and how many Java clients queued before it.
local function record(now, allowance_ms, java_before)
  return string.format('%.0f %.0f', now + alive_ms(allowance_ms), java_before)
end

local function alive_until(record)
  return tonumber(string.match(record, '^%d+'))
end

local function java_before(record)
  return tonumber(string.match(record, ' (%d+)$'))
end

-- Removes what is stored about waiters that are no longer in the queue.
local function forget(scores, places, tickets, waiters)
  redis.call('zrem', scores, unpack(waiters))
  redis.call('hdel', places, unpack(waiters))
  redis.call('zrem', tickets, unpack(waiters))
end

-- Sets the expiry of the queue's keys. `score_ms` is the time until the latest score of our waiters. After the records have
-- expired, a waiter that is still in the list is judged by its score.
local function keep_queue(queue, scores, places, tickets, score_ms, allowance_ms)
  redis.call('pexpire', queue, score_ms + KEEP_MS)
  redis.call('pexpire', scores, score_ms + KEEP_MS)
  redis.call('pexpire', places, score_ms + alive_ms(allowance_ms))
  redis.call('pexpire', tickets, score_ms + alive_ms(allowance_ms))
end

-- If only Java's waiters are left, no heartbeat renews the expiry of the keys that Java needs. So this expiry is removed.
local function leave_to_java(queue, scores, tickets)
  if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
    redis.call('persist', queue)
    redis.call('persist', scores)
  end
end

-- Removes dead waiters at the head of the queue that are not Java's. Returns whether there were any.
local function remove_dead(queue, scores, places, tickets, now)
  local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
  local dead = {}
  for i, place in ipairs(redis.call('hmget', places, unpack(waiters))) do
    -- A waiter without a record is Java's, and is judged by its score.
    if not place or alive_until(place) > now then
      break
    end
    dead[i] = waiters[i]
  end
  if #dead == 0 then
    return false
  end
  redis.call('lpop', queue, #dead)
  forget(scores, places, tickets, dead)
  return true
end

-- Puts back waiters that were removed from the front of the queue: those with smaller tickets than the first waiter in it,
-- in the order of their tickets. They were removed by hand, or by a Java client whose clock is ahead. Returns whether there
-- were any.
local function put_back(queue, scores, tickets, first, now)
  local most = first and redis.call('zscore', tickets, first)
  local missing, score = {}, now + SLACK_MS
  -- LREM searches the list, so in a long list fewer are put back at once.
  local at_once = math.max(1, math.min(CHUNK, math.floor(100000 / (redis.call('llen', queue) + 1))))
  for _, waiter in ipairs(redis.call('zrange', tickets, '0', at_once - 1)) do
    if most then
      if tonumber(redis.call('zscore', tickets, waiter)) >= tonumber(most) then
        break
      end
    elseif first and redis.call('zscore', scores, waiter) then
      break
    end
    missing[#missing + 1] = waiter
  end
  for i = #missing, 1, -1 do
    -- If the waiter's ticket was removed and made anew, the waiter can be further back in the list. A waiter that is in the
    -- list twice would block the others.
    redis.call('lrem', queue, '0', missing[i])
    redis.call('lpush', queue, missing[i])
    redis.call('zadd', scores, score, missing[i])
  end
  return #missing > 0
end

-- Returns whether `foremost`, our waiter with the smallest ticket, is missing from its position in the queue. `first` is the
-- first waiter in the queue.
local function is_missing(queue, scores, tickets, foremost, first)
  if not first then
    return true
  end
  -- If the first waiter has a ticket, it queued after the foremost, so the foremost is missing. Otherwise the first waiter
  -- is Java's. Java removes a waiter from the list and from the scores together, so a foremost without a score is missing.
  -- But if there are fewer scores than waiters, another program removed scores, and a missing score proves nothing.
  return redis.call('zscore', tickets, first)
    or not redis.call('zscore', scores, foremost) and redis.call('zcard', scores) >= redis.call('llen', queue)
end

-- Returns the first living waiter in the queue, and the time. Removes the dead waiters in front of it. If nobody waits,
-- returns nil instead of the waiter. If there were too many dead waiters for one script, also returns true as a third value.
local function head(queue, scores, places, tickets, now, java_wait_ms)
  for _ = 1, CHUNKS do
    local first = redis.call('lindex', queue, '0')
    local foremost = redis.call('zrange', tickets, '0', '0')[1]
    if not first and not foremost then
      return nil, now
    end
    now = now or server_time()
    local is_restored = foremost and foremost ~= first and is_missing(queue, scores, tickets, foremost, first)
      and put_back(queue, scores, tickets, first, now)
    if first and not is_restored then
      local place = redis.call('hget', places, first)
      if place then
        if alive_until(place) > now then
          return first, now
        end
        remove_dead(queue, scores, places, tickets, now)
        leave_to_java(queue, scores, tickets)
      else
        local till = tonumber(redis.call('zscore', scores, first))
        if not till then
          -- Java would keep a waiter without a score for ever.
          till = now + java_wait_ms
          redis.call('zadd', scores, till, first)
        end
        if till > now then
          return first, now
        end
        redis.call('lpop', queue)
        forget(scores, places, tickets, { first })
      end
    end
  end
  return nil, now, true
end

-- Walks over the Java clients at one end of the queue, up to the first waiter that is not Java's. Returns the record of that
-- waiter (nil: there is none), and a list of these Java clients.
local function beyond_java(queue, places, from, step)
  local java, at = {}, from
  while true do
    local waiters = step > 0 and redis.call('lrange', queue, at, at + CHUNK - 1)
      or redis.call('lrange', queue, at - CHUNK + 1, at)
    if #waiters == 0 then
      return nil, java
    end
    for i = 1, #waiters do
      local waiter = waiters[step > 0 and i or #waiters + 1 - i]
      local place = redis.call('hget', places, waiter)
      if place then
        return place, java
      end
      java[#java + 1] = waiter
    end
    at = at + step * CHUNK
    if step < 0 and #waiters < CHUNK then
      return nil, java
    end
  end
end
