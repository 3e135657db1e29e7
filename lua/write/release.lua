#!lua flags=allow-oom
--[[
  Ends a write hold, whatever its hold count is: frees the lock, or leaves it to the owner's own read hold, and wakes all
  waiters. Also undoes an attempt, and removes the intent of a writer that gave up.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of the owner's read holds, and the
                    intent of a writer
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  writer  text: the owner of the hold, "<client uuid>:<n>:write"

  With  keeps_data replies tag_of read_write/intent_of read_write/longest

  Returns
    >= 0         released: this owner no longer holds the write lock. The number of connections that the message reached
    LOST         this owner held nothing
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "1" on channel, if this owner no longer holds the write lock, or if its intent was removed
  Repeating  changes nothing: an owner id is not used again after its hold ended
]]
local lock, channel = KEYS[1], KEYS[2]
local writer = ARGV[1]

-- Wakes all waiters. pcall: the script has changed keys already, so a refused message must not make it fail.
local function wake()
  return redis.pcall('publish', channel, '1')
end

local tag = tag_of(lock)
if redis.call('hexists', lock, writer) == 0 then
  local intent = tag .. INTENT
  local _, other = intent_of(intent)
  if other == writer then
    redis.call('del', intent)
    wake()
  end
  return LOST
end
-- Two fields: the mode and this writer. If both are removed, nothing is left to look at.
local is_data = false
if redis.call('hlen', lock) ~= 2 or redis.call('hdel', lock, 'mode', writer) ~= 2 then
  local reader = string.match(writer, '^(.*):write$')
  -- All keys, because a writer of Redisson is released by force, too.
  local lasts_ms = longest(tag, reader, tonumber(redis.call('hget', lock, reader)) or 0)
  if lasts_ms ~= -2 then
    redis.call('hdel', lock, writer)
    redis.call('hset', lock, 'mode', 'read')
    redis.call('pexpire', lock, lasts_ms)
  else
    redis.call('hdel', lock, 'mode', writer, reader)
    is_data = keeps_data(lock)
  end
end
local told = wake()
return is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD or told
