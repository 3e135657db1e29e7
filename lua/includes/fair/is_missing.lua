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
