-- With  fair/limits fair/alive_until fair/forget
-- Removes dead waiters at the head of the queue that are not Java's.
local function remove_dead(queue, scores, records, tickets, now)
  local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
  local dead = {}
  for i, record in ipairs(redis.call('hmget', records, unpack(waiters))) do
    -- A waiter without a record is Java's, and is judged by its score.
    if not record or alive_until(record) > now then
      break
    end
    dead[i] = waiters[i]
  end
  if #dead > 0 then
    redis.call('lpop', queue, #dead)
    forget(scores, records, tickets, dead)
  end
end
