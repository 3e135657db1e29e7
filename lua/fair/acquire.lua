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

  Returns
    nil   granted
    >= 0  held by another owner, and this one is next: milliseconds left of its lease
    -1    others are before this one, or the lock is held without expiry
    -4    the same, and it did not stand in the queue before
    -3    the name is in use as a read-write lock
  Publishes  "0" on the channel of the first in the queue, if the lock is free and that is somebody else
  Repeating  a copy that finds its own hold answers "granted" and adds no hold, one that finds itself in the queue
             keeps its place; one that runs after both were given up creates an orphan, which the sender goes on
             releasing until none can come any more
]]
local lock, queue, scores, places, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease_ms, allowance_ms, java_wait_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Java's scores are refreshed by nobody, and lowered by each grant: ours stay this much above that.
local SLACK_MS = 60000
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first in the queue that is alive. Those before it are dropped.
local function head()
  while true do
    local first = redis.call('lindex', queue, 0)
    if not first then
      return nil
    end
    local place, till = redis.call('hget', places, first), nil
    if place then
      till = tonumber(string.match(place, '^%d+'))
    else
      till = tonumber(redis.call('zscore', scores, first))
      if not till then
        -- Java would keep it for ever.
        till = now + java_wait_ms
        redis.call('zadd', scores, till, first)
      end
    end
    if till > now then
      return first
    end
    redis.call('lpop', queue)
    redis.call('zrem', scores, first)
    redis.call('hdel', places, first)
  end
end

local is_free = redis.call('exists', lock) == 0
if not is_free then
  if redis.call('hexists', lock, owner) == 1 then
    if redis.call('pttl', lock) < lease_ms then
      redis.call('pexpire', lock, lease_ms)
    end
    return nil
  end
  -- Only a read-write lock's hash has this field.
  if redis.call('hexists', lock, 'mode') == 1 then
    return -3
  end
end

-- A Java client whose clock is ahead drops who is alive. It goes back to where its ticket says.
local function put_back(ticket)
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    local place = redis.call('hget', places, waiter)
    if not place or tonumber(string.match(place, '%d+$')) > ticket then
      redis.call('linsert', queue, 'before', waiter, owner)
      return
    end
  end
  redis.call('rpush', queue, owner)
end

-- For how long Rust takes it for alive, with time for a heartbeat that is late.
local alive_ms = allowance_ms + math.floor(allowance_ms / 3)
local place = redis.call('hget', places, owner)
local ticket = place and tonumber(string.match(place, '%d+$')) or time[1] * 1000000 + time[2]
if place then
  -- Before the dead are dropped: it is alive, however late it is.
  redis.call('hset', places, owner, string.format('%.0f %.0f', now + alive_ms, ticket))
  if not redis.call('lpos', queue, owner) then
    put_back(ticket)
  end
end

local first = head()
if is_free and (not first or first == owner) then
  -- Without a key it changes nothing. A user who may not do it is stopped here, and not between the next two lines,
  -- where a lock without expiry would be left.
  redis.call('pexpire', lock, lease_ms)
  redis.call('hset', lock, owner, 1)
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
  if not place and not redis.call('lpos', queue, owner) then
    redis.call('rpush', queue, owner)
    is_new = true
  end
  redis.call('hset', places, owner, string.format('%.0f %.0f', now + alive_ms, ticket))
  -- Each Java client before this one lowers its score once at most, when it is granted or gives up.
  local score = now + allowance_ms + SLACK_MS
  if redis.call('llen', queue) ~= redis.call('hlen', places) then
    for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
      if waiter == owner then
        break
      end
      if redis.call('hexists', places, waiter) == 0 then
        score = math.max(score, tonumber(redis.call('zscore', scores, waiter) or 0)) + java_wait_ms
      end
    end
  end
  redis.call('zadd', scores, score, owner)
  -- Longer than its score, or it would be taken for Java's.
  if redis.call('pttl', places) < score - now + alive_ms then
    redis.call('pexpire', places, score - now + alive_ms)
  end
  first = first or owner
end

if is_free then
  redis.pcall('publish', channel .. ':' .. first, '0')
elseif first == owner then
  return redis.call('pttl', lock)
end
return is_new and -4 or -1
