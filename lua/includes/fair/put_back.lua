-- With  fair/limits
-- Puts back waiters that were removed from the front of the queue: those with smaller tickets than the first waiter in it,
-- in the order of their tickets. They were removed by hand, or by a Java client whose clock is ahead. Returns whether there
-- were any.
local function put_back(queue, scores, tickets, first, now)
  local most = first and redis.call('zscore', tickets, first)
  local missing, score = {}, now + SLACK_MS
  -- LREM searches the list, so in a long list fewer are put back at once.
  local at_once = math.max(1, math.min(CHUNK, math.floor(100000 / (redis.call('llen', queue) + 1))))
  for _, waiter in ipairs(redis.call('zrange', tickets, '0', at_once - 1)) do
    if most then
      if tonumber(redis.call('zscore', tickets, waiter)) >= tonumber(most) then
        break
      end
    elseif first and redis.call('zscore', scores, waiter) then
      break
    end
    missing[#missing + 1] = waiter
  end
  for i = #missing, 1, -1 do
    -- If the waiter's ticket was removed and made anew, the waiter can be further back in the list. A waiter that is in the
    -- list twice would block the others.
    redis.call('lrem', queue, '0', missing[i])
    redis.call('lpush', queue, missing[i])
    redis.call('zadd', scores, score, missing[i])
  end
  return #missing > 0
end
