#!lua flags=allow-oom
--[[
  Ask whether anybody holds the read lock.

  KEYS[1]  lock  hash: "mode" -> "read" or "write", owner -> hold count; and the keys of readers' holds

  With  read/shared.lua

  Returns
    >= 0  held: milliseconds for which some reader lasts
    -2    nobody reads
    -3    the key is a lock that is not a read-write lock
    -5    the key is a hash that is no lock
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local mode = redis.call('hget', lock, 'mode')
if mode ~= 'read' and mode ~= 'write' then
  if redis.call('exists', lock) == 0 then
    return -2
  end
  return no_read_write_lock(lock, mode)
end

-- Milliseconds for which one of these lasts that reads and is alive. None: nobody does.
local function alive(found)
  for i = 1, #found, 2 do
    local reader, count = found[i], found[i + 1]
    if reader ~= 'mode' and not is_writer(reader) and is_holder(reader, count) then
      local lasts_ms = longest(hold_keys(lock, reader), tonumber(count))
      if lasts_ms ~= -2 then
        return lasts_ms
      end
    end
  end
  return nil
end

-- Most readers are alive, so a few of them tell. With none among them, all are looked at.
local lasts_ms = alive(redis.call('hrandfield', lock, '8', 'withvalues'))
if not lasts_ms and redis.call('hlen', lock) > 8 then
  lasts_ms = alive(redis.call('hgetall', lock))
end
return lasts_ms or -2
