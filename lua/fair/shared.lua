-- Shared by the scripts of a fair lock. It is inserted behind the first line of each of them.
--
-- The queue is Redisson's list, and a score for each waiter, by which Java judges whether it is alive. Of a waiter that is
-- not Java's there are two more things: a record, by which it is judged here, and its ticket, which says where it belongs.
-- Nothing here looks through the queue: what is done at its ends costs the same for any number of waiters.

-- Java's scores are refreshed by nobody, and lowered by each grant: ours stay this much above that.
local SLACK_MS = 60000

-- Waiters that one script removes or puts back at most, so that it does not keep the server from others.
local CHUNK, CHUNKS = 100, 20

-- Milliseconds of the server's clock; and microseconds, as text.
local function server_time()
  local time = redis.call('time')
  local now_us = time[1] .. string.sub('00000' .. time[2], -6)
  return math.floor(now_us / 1000), now_us
end

-- For how long a waiter counts as alive, with time for a heartbeat that is late.
local function alive_ms(allowance_ms)
  return allowance_ms + math.floor(allowance_ms / 3)
end

-- The record of a waiter: until when it counts as alive, and how many Java clients have ever queued before it.
local function record(now, allowance_ms, java_before)
  return string.format('%.0f %.0f', now + alive_ms(allowance_ms), java_before)
end

local function alive_until(record)
  return tonumber(string.match(record, '^%d+'))
end

local function java_before(record)
  return tonumber(string.match(record, ' (%d+)$'))
end

-- Forgets waiters that are no longer in the queue.
local function forget(scores, places, tickets, waiters)
  redis.call('zrem', scores, unpack(waiters))
  redis.call('hdel', places, unpack(waiters))
  redis.call('zrem', tickets, unpack(waiters))
end

-- Where nobody is left but Java's waiters, nobody would refresh the expiry of what Java needs.
local function leave_to_java(queue, scores, tickets)
  if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
    redis.call('persist', queue)
    redis.call('persist', scores)
  end
end

-- Removes the dead in front, and none else. True: it removed some.
local function remove_dead(queue, scores, places, tickets, now)
  local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
  local dead = {}
  for i, place in ipairs(redis.call('hmget', places, unpack(waiters))) do
    -- Without a record it is Java's, and is judged by its score.
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

-- Puts back waiters that Java, or somebody by hand, removed from the front of the queue: those with smaller tickets than the
-- first there, in their order. A Java client whose clock is ahead removes those who are alive.
local function put_back(queue, scores, tickets, first, now)
  local most = first and redis.call('zscore', tickets, first)
  local missing, score = {}, now + SLACK_MS
  for _, waiter in ipairs(redis.call('zrange', tickets, '0', CHUNK - 1)) do
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
    redis.call('lpush', queue, missing[i])
    redis.call('zadd', scores, score, missing[i])
  end
end

-- Whether the waiter that belongs in front of all others of ours is not in the queue, given the first that is.
local function is_missing(scores, tickets, foremost, first)
  if not first then
    return true
  end
  -- In front of it stands Java, which removes both or none; or one that came later.
  return redis.call('zscore', tickets, first) or not redis.call('zscore', scores, foremost)
end

-- The first in the queue that is alive, and the time. The dead before it are removed. No first: nobody waits; or, with
-- `true` behind the time, there were too many of them for one script.
local function head(queue, scores, places, tickets, now, java_wait_ms)
  for _ = 1, CHUNKS do
    local first = redis.call('lindex', queue, '0')
    local foremost = redis.call('zrange', tickets, '0', '0')[1]
    if not first and not foremost then
      return nil, now
    end
    now = now or server_time()
    if foremost and foremost ~= first and is_missing(scores, tickets, foremost, first) then
      put_back(queue, scores, tickets, first, now)
    else
      local place = redis.call('hget', places, first)
      if place then
        if alive_until(place) > now then
          return first, now
        end
        remove_dead(queue, scores, places, tickets, now)
      else
        local till = tonumber(redis.call('zscore', scores, first))
        if not till then
          -- Java would keep it for ever.
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

-- Walks over the Java clients at one end of the queue, up to the first waiter that is not Java's. Returns that one's record, if
-- there is one, and how many and which they are.
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
