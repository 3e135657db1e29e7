#!lua flags=allow-oom
--[[
  Returns whether an owner holds the read lock.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of readers' holds
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  With  is_holder replies tag_of read_write/longest read_write/fields_of

  Returns
    >= 0        held: milliseconds left of the lease of a living reader
    FREE        no living reader holds it
    OTHER_KIND  the key is a lock that is not a read-write lock
    NOT_A_LOCK  the key is a hash that is no lock
  Publishes  nothing
  Repeating  changes nothing
]]
local lock, channel = KEYS[1], KEYS[2]

local tag, mode = tag_of(lock), redis.call('hget', lock, 'mode')
if mode ~= 'read' and mode ~= 'write' then
  if redis.call('exists', lock) == 0 then
    return FREE
  end
  return fields_of(lock).kind_reply(mode)
end

-- Returns the milliseconds left of the lease of a living reader among these fields. nil: there is none.
local function alive(found)
  for i = 1, #found, 2 do
    local reader, count = found[i], found[i + 1]
    if is_holder(reader, count) then
      local lasts_ms = longest(tag, reader, tonumber(count))
      if lasts_ms ~= -2 then
        return lasts_ms
      end
    end
  end
  return nil
end

-- Most readers are alive, so a few fields are enough. If none of those is alive, all are checked.
local lasts_ms = alive(redis.call('hrandfield', lock, '8', 'withvalues'))
if not lasts_ms and redis.call('hlen', lock) > 8 then
  lasts_ms = alive(redis.call('hgetall', lock))
end
return lasts_ms or FREE
