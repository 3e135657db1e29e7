-- Removes what is stored about waiters that are no longer in the queue.
local function forget(scores, records, tickets, waiters)
  redis.call('zrem', scores, unpack(waiters))
  redis.call('hdel', records, unpack(waiters))
  redis.call('zrem', tickets, unpack(waiters))
end
