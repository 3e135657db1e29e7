-- What the scripts of a fair lock share. It is put behind the first line of each of them.

-- Java's scores are refreshed by nobody, and lowered by each grant: ours stay this much above that.
local SLACK_MS = 60000

-- Milliseconds of the server's clock; and microseconds, as text.
local function server_time()
  local time = redis.call('time')
  local now_us = time[1] .. string.sub('00000' .. time[2], -6)
  return math.floor(now_us / 1000), now_us
end

-- The first in the queue that is alive. Those before it are dropped. It looks at the clock, if nobody did, and somebody
-- waits.
local function head(queue, scores, places, now, java_wait_ms)
  while true do
    local first = redis.call('lindex', queue, 0)
    if not first then
      return nil
    end
    now = now or server_time()
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

local function ticket_of(place)
  return string.match(place, ' (.+)')
end

-- A Java client whose clock is ahead drops who is alive. It goes back to where its ticket says.
local function put_back(queue, places, owner, ticket)
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    local place = redis.call('hget', places, waiter)
    if not place or tonumber(ticket_of(place)) > tonumber(ticket) then
      redis.call('linsert', queue, 'before', waiter, owner)
      return
    end
  end
  redis.call('rpush', queue, owner)
end

-- For how long Rust takes a waiter for alive, with time for a heartbeat that is late.
local function alive_ms(allowance_ms)
  return allowance_ms + math.floor(allowance_ms / 3)
end

local function record(places, owner, ticket, now, allowance_ms)
  redis.call('hset', places, owner, string.format('%.0f %s', now + alive_ms(allowance_ms), ticket))
end

-- Raises the scores of these waiters (a set) above all that Java may take from them. No queue: nobody is before them.
local function raise_scores(queue, scores, places, ours, now, allowance_ms, java_wait_ms)
  local score = now + allowance_ms + SLACK_MS
  for owner in pairs(ours) do
    redis.call('zadd', scores, 'GT', score, owner)
  end
  -- Each Java client before one of them lowers its score once at most, when it is granted or gives up. Without Java
  -- in the queue, nobody looks through it.
  if queue and redis.call('llen', queue) ~= redis.call('hlen', places) then
    for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
      if ours[waiter] then
        redis.call('zadd', scores, score, waiter)
      elseif redis.call('hexists', places, waiter) == 0 then
        score = math.max(score, tonumber(redis.call('zscore', scores, waiter) or 0)) + java_wait_ms
      end
    end
  end
  -- Longer than the scores, or who has a place would be taken for Java's.
  local keep_ms = score - now + alive_ms(allowance_ms)
  -- 0: it is new and has no expiry yet, or it lasts longer.
  if redis.call('pexpire', places, keep_ms, 'gt') == 0 then
    redis.call('pexpire', places, keep_ms, 'nx')
  end
end
