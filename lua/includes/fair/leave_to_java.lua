-- If only Java's waiters are left, no heartbeat renews the expiry of the keys that Java needs. So this expiry is removed.
local function leave_to_java(queue, scores, tickets)
  if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
    redis.call('persist', queue)
    redis.call('persist', scores)
  end
end
