#!lua flags=allow-oom
--[[
  Releases permits of a semaphore, and wakes those who wait for permits. Also undoes an attempt.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease

  ARGV[1]  ids      bytes: the ids of the permits, 16 bytes each
  ARGV[2]  channel  where the waiters of this semaphore listen. Not in KEYS: then no key with its name is needed

  With  replies semaphore/permit_of

  Returns
    >= 0         released: the number of connections that the message reached. 0 also if there was no message
    LOST         a permit was not there. Those that were there are released
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
  Publishes  the number of available permits on channel, if a permit was there and the number is > 0
  Repeating  changes nothing: an id is not used again after its permit was released
]]
local semaphore, permits = KEYS[1], KEYS[2]
local ids, channel = ARGV[1], ARGV[2]

local wanted, released = #ids / 16, {}
for i = 1, wanted do
  local id = wanted == 1 and ids or permit_of(ids, i)
  if redis.call('zrem', permits, id) == 1 then
    released[#released + 1] = id
  end
end
if #released == 0 then
  return LOST
end
-- A semaphore that was deleted is not created again. The next acquire creates it, so those who wait are woken.
local available = #released
if redis.call('exists', semaphore) == 1 then
  available = redis.pcall('incrby', semaphore, wanted == 1 and '1' or #released)
  if type(available) == 'table' then
    -- The change was refused, for example because this user has no right to it. The permits go back into the set as if
    -- their leases had ended, and an acquire of another user adds them to the number.
    for _, id in ipairs(released) do
      redis.call('zadd', permits, '1', id)
    end
    return available
  end
end
local told = 0
if available > 0 then
  -- pcall: the permits are available already, so a refused message must not make the script fail.
  told = redis.pcall('publish', channel, available)
end
return #released < wanted and LOST or type(told) == 'table' and NOBODY_TOLD or told
