#!lua flags=allow-oom
--[[
  Keep the places of waiters of one process in the queue of a fair lock, drop the dead before them, and if the lock is
  free tell the first.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: who waits, in order
  KEYS[3]  scores   sorted set: who waits -> until when Java takes it for alive
  KEYS[4]  places   hash: who waits and is not Java's -> "<alive until, ms> <ticket, µs>"
  KEYS[5]  channel  what the channels of all waiters begin with

  ARGV[1]  allowance_ms  milliseconds for which a waiter counts as alive
  ARGV[2]  java_wait_ms  milliseconds: the longest that a Java client waits
  ARGV[3]  owners        text: the waiters, with spaces between them

  Returns
    list  per waiter 2 (it is the first, and the lock is free), 1 (its place is kept) or 0 (it has none any more)
  Publishes  "0" on the channel of the first in the queue, if the lock is free
  Repeating  changes nothing but the time. A copy that runs after a waiter left finds no place of it
]]
local lock, queue, scores, places, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local allowance_ms, java_wait_ms, owners = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- See acquire.
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

-- A Java client whose clock is ahead drops who is alive. It goes back to where its ticket says.
local function put_back(owner, ticket)
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    local place = redis.call('hget', places, waiter)
    if not place or tonumber(string.match(place, '%d+$')) > ticket then
      redis.call('linsert', queue, 'before', waiter, owner)
      return
    end
  end
  redis.call('rpush', queue, owner)
end

local alive_ms = allowance_ms + math.floor(allowance_ms / 3)
local base = now + allowance_ms + SLACK_MS
local kept, ours = {}, {}
for owner in string.gmatch(owners, '%S+') do
  local place = redis.call('hget', places, owner)
  if place then
    local ticket = tonumber(string.match(place, '%d+$'))
    if not redis.call('zscore', scores, owner) and not redis.call('lpos', queue, owner) then
      put_back(owner, ticket)
    end
    redis.call('hset', places, owner, string.format('%.0f %.0f', now + alive_ms, ticket))
    redis.call('zadd', scores, 'GT', base, owner)
    ours[owner] = #kept + 1
  end
  kept[#kept + 1] = place and 1 or 0
end

local first = head()
local score = base
if redis.call('llen', queue) ~= redis.call('hlen', places) then
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    if ours[waiter] then
      redis.call('zadd', scores, score, waiter)
    elseif redis.call('hexists', places, waiter) == 0 then
      score = math.max(score, tonumber(redis.call('zscore', scores, waiter) or 0)) + java_wait_ms
    end
  end
end
-- Longer than the scores, or who has a place would be taken for Java's.
if redis.call('pttl', places) < score - now + alive_ms then
  redis.call('pexpire', places, score - now + alive_ms)
end
if first and redis.call('exists', lock) == 0 then
  redis.pcall('publish', channel .. ':' .. first, '0')
  if ours[first] then
    kept[ours[first]] = 2
  end
end
return kept
