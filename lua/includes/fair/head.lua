-- With  server_time fair/limits fair/alive_until fair/forget fair/leave_to_java fair/remove_dead fair/put_back fair/is_missing
-- Returns the first living waiter in the queue, and the time. Removes the dead waiters in front of it. If nobody waits,
-- returns nil instead of the waiter. If there were too many dead waiters for one script, also returns true as a third value.
local function head(queue, scores, records, tickets, now)
  for _ = 1, CHUNKS do
    local first = redis.call('lindex', queue, '0')
    local foremost = redis.call('zrange', tickets, '0', '0')[1]
    if not first and not foremost then
      return nil, now
    end
    now = now or server_time()
    local is_restored = foremost and foremost ~= first and is_missing(queue, scores, tickets, foremost, first)
      and put_back(queue, scores, tickets, first, now)
    if first and not is_restored then
      local record = redis.call('hget', records, first)
      if record then
        if alive_until(record) > now then
          return first, now
        end
        remove_dead(queue, scores, records, tickets, now)
        leave_to_java(queue, scores, tickets)
      else
        local till = tonumber(redis.call('zscore', scores, first))
        if not till then
          -- Java would keep a waiter without a score for ever, so this waiter gets a score.
          till = now + JAVA_WAIT_MS
          redis.call('zadd', scores, till, first)
        end
        if till > now then
          return first, now
        end
        redis.call('lpop', queue)
        forget(scores, records, tickets, { first })
      end
    end
  end
  return nil, now, true
end
