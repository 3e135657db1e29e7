#!lua
--[[
  Acquires a fair lock that is free, for an owner that holds nothing on it and is first in the queue. Otherwise queues. The
  only script of the fair lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: the waiters, in order
  KEYS[3]  scores   sorted set: waiter -> until when Java considers it alive, ms
  KEYS[4]  records  hash: waiter that is not Java's -> "<alive until, ms> <Java clients in front>"
  KEYS[5]  tickets  sorted set: waiter that is not Java's -> when it queued, µs
  KEYS[6]  channel  prefix of the channel of each waiter

  ARGV[1]  owner         text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms      milliseconds, > 0
  ARGV[3]  allowance_ms  milliseconds for which a waiter counts as alive; 0: do not queue
  ARGV[4]  valid_until   seconds of the server's time, ten digits: the script does nothing after them

  With  create_hold occupied_reply server_time replies fair/limits fair/record fair/head fair/skip_java fair/forget
  With  fair/leave_to_java fair/expire_queue

  Returns
    nil            granted
    >= 0           held by another owner, and this waiter is the next: milliseconds left of the holder's lease
    NO_KNOWN_END   other waiters are in front, or the lock is held without expiry
    OTHER_KIND     the key is a read-write lock
    QUEUED         this owner had no place in the queue, and has one now
    NOT_A_LOCK     the key is a hash that is no lock
    ATTEMPT_AGAIN  dead waiters were removed, and perhaps there are more
    LATE           valid_until has passed
  Publishes  "0" on the channel of the first waiter, if the lock is free and that waiter is another owner
  Repeating  a copy that finds its own hold answers "granted" and adds no hold: a waiter in the queue attempts again under the same
             owner after a lost reply, or it would lose its place. A copy that finds its own place keeps that place. A copy that runs after hold and place were released creates an orphan. The sender releases this
             orphan until no copy can arrive
]]
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, lease_ms, allowance_ms, valid_until = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now, now_us, now_s = server_time()
if now_s > valid_until then
  return LATE
end

local left_ms = redis.call('pttl', lock)
local is_free = left_ms == -2
if not is_free then
  if redis.call('hexists', lock, owner) == 1 then
    redis.call('pexpire', lock, lease_ms, 'gt')
    return nil
  end
  left_ms = occupied_reply(lock, left_ms)
  if left_ms < NO_KNOWN_END then
    return left_ms
  end
end

local own_record = redis.call('hget', records, owner)
local first, is_cut
-- If the list was lost, this waiter perhaps still has a ticket, which has to end with the grant.
if own_record or not is_free or redis.call('exists', queue, tickets) > 0 then
  if own_record then
    -- This comes before dead waiters are removed: this waiter is alive, however late its record is.
    redis.call('hset', records, owner, new_record(now, allowance_ms, java_before(own_record)))
  end
  first, now, is_cut = head(queue, scores, records, tickets, now)
  if is_cut then
    return ATTEMPT_AGAIN
  end
  if own_record and first ~= owner and not redis.call('zscore', tickets, owner) then
    own_record = nil -- another program removed its ticket
  end
end
if is_free and (not first or first == owner) then
  create_hold(lock, lease_ms, owner, '1')
  if first then
    redis.call('lpop', queue)
    forget(scores, records, tickets, { owner })
    leave_to_java(queue, scores, tickets)
  end
  return nil
end

local is_new = false
if allowance_ms > 0 and not own_record then
  local score = now + allowance_ms + SLACK_MS
  local had_score = redis.call('zadd', scores, score, owner) == 0
  local queued, last = redis.call('llen', queue), redis.call('zrange', tickets, '-1', '-1', 'withscores')
  -- Tickets state the order, so they grow whatever the clock does.
  local ticket = string.format('%.0f', math.max(now_us, (tonumber(last[2]) or 0) + 1))
  -- Perhaps another program removed keys. A waiter with a ticket has a place: if it is not in the list, it will be put back.
  -- A waiter with only a score is in the list, unless the list has fewer waiters than there are scores.
  if redis.call('zscore', tickets, owner) or had_score and queued >= redis.call('zcard', scores) then
    redis.call('zadd', tickets, 'nx', ticket, owner)
    redis.call('hset', records, owner, new_record(now, allowance_ms, 0))
    expire_queue(queue, scores, records, tickets, score - now, allowance_ms)
  else
    local java, before = {}, 0
    if first then
      local tail = redis.call('lindex', queue, '-1')
      local nearest = redis.call('hget', records, tail)
      if not nearest then
        nearest, java = skip_java(queue, records, true)
      end
      before = #java + (nearest and java_before(nearest) or 0)
      if before > 0 then
        -- Each Java client in front lowers this score at most once, when it is granted the lock or leaves.
        score = math.max(score, tonumber(redis.call('zscore', scores, tail) or 0)) + #java * JAVA_WAIT_MS
        redis.call('zadd', scores, score, owner)
      end
    end
    redis.call('zadd', tickets, ticket, owner)
    redis.call('hset', records, owner, new_record(now, allowance_ms, before))
    if queued + 1 ~= redis.call('zcard', scores) then
      -- Not as many waiters as scores: keys were removed, and perhaps this waiter is in the list already.
      redis.call('lrem', queue, '0', owner)
    end
    redis.call('rpush', queue, owner)
    if not last[1] then
      expire_queue(queue, scores, records, tickets, score - now, allowance_ms)
    end
    is_new = true
    first = first or owner
  end
end

if is_free then
  redis.pcall('publish', channel .. ':' .. first, '0')
end
if is_new then
  return QUEUED
end
return not is_free and first == owner and left_ms or NO_KNOWN_END
