-- With  fair/limits
-- Walks over the Java clients at one end of the queue, up to the first waiter that is not Java's. Returns the record of that
-- waiter (nil: there is none), and a list of these Java clients.
local function skip_java(queue, records, from, step)
  local java, at = {}, from
  while true do
    local waiters = step > 0 and redis.call('lrange', queue, at, at + CHUNK - 1)
      or redis.call('lrange', queue, at - CHUNK + 1, at)
    if #waiters == 0 then
      return nil, java
    end
    for i = 1, #waiters do
      local waiter = waiters[step > 0 and i or #waiters + 1 - i]
      local record = redis.call('hget', records, waiter)
      if record then
        return record, java
      end
      java[#java + 1] = waiter
    end
    at = at + step * CHUNK
    if step < 0 and #waiters < CHUNK then
      return nil, java
    end
  end
end
