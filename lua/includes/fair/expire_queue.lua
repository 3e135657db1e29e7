-- With  fair/record
-- The list and the scores expire this long after the latest score of our waiters. Java adds waiters and does not renew the
-- keys, so this is far longer than any Java client waits.
local KEEP_MS = 86400000

-- Sets the expiry of the queue's keys. `score_ms` is the time until the latest score of our waiters. After the records have
-- expired, a waiter that is still in the list is judged by its score.
local function expire_queue(queue, scores, records, tickets, score_ms, allowance_ms)
  redis.call('pexpire', queue, score_ms + KEEP_MS)
  redis.call('pexpire', scores, score_ms + KEEP_MS)
  redis.call('pexpire', records, score_ms + alive_ms(allowance_ms))
  redis.call('pexpire', tickets, score_ms + alive_ms(allowance_ms))
end
