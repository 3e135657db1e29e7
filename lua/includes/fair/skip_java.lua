-- With  fair/limits
-- Walks over the Java clients at one end of the queue, up to the first waiter that is not Java's. Returns the record of that
-- waiter (nil: there is none), and a list of these Java clients.
local function skip_java(queue, records, is_from_end)
  local java, at = {}, 0
  repeat
    local waiters = is_from_end and redis.call('lrange', queue, -at - CHUNK, -at - 1)
      or redis.call('lrange', queue, at, at + CHUNK - 1)
    for i = 1, #waiters do
      local waiter = waiters[is_from_end and #waiters + 1 - i or i]
      local record = redis.call('hget', records, waiter)
      if record then
        return record, java
      end
      java[#java + 1] = waiter
    end
    at = at + CHUNK
  until #waiters < CHUNK
  return nil, java
end
