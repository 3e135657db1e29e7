#!lua flags=allow-oom
--[[
  Returns whether an owner holds the read lock.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of readers' holds
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  With  is_holder occupied_reply replies tag_of read_write/longest

  Returns
    >= 0        held: milliseconds left of the lease of a living reader
    FREE        no living reader holds it
    OTHER_KIND  the key is a lock that is not a read-write lock
    NOT_A_LOCK  the key is a hash that is no lock
  Repeating  changes nothing
]]
local lock, channel = KEYS[1], KEYS[2]

local tag, mode = tag_of(lock), redis.call('hget', lock, 'mode')
if mode ~= 'read' and mode ~= 'write' then
  return redis.call('exists', lock) == 0 and FREE or occupied_reply(lock, OTHER_KIND)
end
-- Most readers are alive, so a few fields are enough. If none of those is alive, all are checked.
for all = 0, 1 do
  local found = all == 0 and redis.call('hrandfield', lock, '8', 'withvalues') or redis.call('hgetall', lock)
  for i = 1, #found, 2 do
    local lasts_ms = is_holder(found[i], found[i + 1]) and longest(tag, found[i], tonumber(found[i + 1])) or -2
    if lasts_ms ~= -2 then
      return lasts_ms
    end
  end
  if #found < 16 then
    break
  end
end
return FREE
