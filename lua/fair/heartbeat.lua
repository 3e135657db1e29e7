#!lua flags=allow-oom
--[[
  Keeps the places of waiters of one process in the queue of a fair lock, removes dead waiters in front of them, and notifies
  the first waiter if the lock is free.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: the waiters, in order
  KEYS[3]  scores   sorted set: waiter -> until when Java considers it alive, ms
  KEYS[4]  records  hash: waiter that is not Java's -> "<alive until, ms> <Java clients in front>"
  KEYS[5]  tickets  sorted set: waiter that is not Java's -> when it queued, µs
  KEYS[6]  channel  prefix of the channel of each waiter

  ARGV[1]  allowance_ms  milliseconds for which a waiter counts as alive
  ARGV[2]  owners        text: the waiters, with spaces between them
  ARGV[3]  valid_until   seconds of the server's time, ten digits: the script does nothing after them

  With  server_time replies fair/limits fair/record fair/head fair/skip_java fair/expire_queue

  Returns
    list  for each waiter:
      PLACE_KEPT
      FIRST_AND_FREE  it is the first, and the lock is free
      MORE_DEAD       its place is kept, and perhaps there are more dead waiters to remove: ask again
      LOST            it no longer has a place
    LATE  valid_until has passed
  Publishes  "0" on the channel of the first waiter, if the lock is free
  Repeating  changes only times. A copy that runs after a waiter left finds no place of it
]]
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local allowance_ms, owners, valid_until = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local now, _, now_s = server_time()
if now_s > valid_until then
  return LATE
end

local waiters, kept, index = {}, {}, {}
for owner in string.gmatch(owners, '%S+') do
  waiters[#waiters + 1] = owner
end
local found = redis.call('hmget', records, unpack(waiters))
-- A waiter with a record and without a ticket has to queue again: another program removed the ticket.
local is_complete = redis.call('hlen', records) == redis.call('zcard', tickets)
local own_records = {}
for i, owner in ipairs(waiters) do
  found[i] = found[i] and (is_complete or redis.call('zscore', tickets, owner)) and found[i]
  kept[i] = found[i] and PLACE_KEPT or LOST
  if found[i] then
    index[owner] = i
    own_records[#own_records + 1] = owner
    own_records[#own_records + 1] = new_record(now, allowance_ms, java_before(found[i]))
  end
end
if #own_records > 0 then
  redis.call('hset', records, unpack(own_records))
end

local first, _, is_cut = head(queue, scores, records, tickets, now)

-- Scores exist for Java. Each Java client in front of a waiter lowers the waiter's score at most once, when that client is
-- granted the lock or leaves. So a score includes one waiting time for each Java client in front. Java clients at the head
-- of the queue are counted here. For those further back, the waiter's record has the highest possible number.
if #own_records > 0 then
  local score, nearest = now + allowance_ms + SLACK_MS, first and redis.call('hget', records, first)
  if first and not nearest then
    local java
    nearest, java = skip_java(queue, records, false)
    for _, waiter in ipairs(java) do
      score = math.max(score, tonumber(redis.call('zscore', scores, waiter) or 0)) + JAVA_WAIT_MS
    end
  end
  local passed, most, raised = nearest and java_before(nearest) or 0, score, {}
  for i, owner in ipairs(waiters) do
    if found[i] then
      local between = math.max(0, java_before(found[i]) - passed)
      local own = score + between * JAVA_WAIT_MS
      most = math.max(most, own)
      raised[#raised + 1] = own
      raised[#raised + 1] = owner
    end
  end
  -- 'xx': a waiter that Java removed must not get a score here.
  redis.call('zadd', scores, 'xx', unpack(raised))
  expire_queue(queue, scores, records, tickets, most - now, allowance_ms)
end

if is_cut then
  for i, reply in ipairs(kept) do
    kept[i] = reply == PLACE_KEPT and MORE_DEAD or reply
  end
elseif first and redis.call('exists', lock) == 0 then
  redis.pcall('publish', channel .. ':' .. first, '0')
  if index[first] then
    kept[index[first]] = FIRST_AND_FREE
  end
end
return kept
