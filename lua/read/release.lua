#!lua flags=allow-oom
--[[
  Ends a read hold, whatever its hold count is. With the last living reader, frees the lock and wakes a waiter. Also undoes an
  attempt.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of the holds
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number of the grant that the hold belongs to; 0: any, also of a reader of Redisson, whose other keys stay until they expire
  ARGV[3]  usual_ms  milliseconds: if this hold alone made the lock's lease longer than this, the lease is shortened

  With  is_holder keeps_data replies tag_of read_write/hold_key read_write/grant_of read_write/longest read_write/reader_ms

  Returns
    0            released: this owner no longer holds the read lock
    LOST         this owner held nothing, or a later hold
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: the number of the grant is never used again
]]
-- If more fields are left than this, the readers are not checked one by one.
local MANY = 4

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, usual_ms = ARGV[1], ARGV[2], ARGV[3]

local tag = tag_of(lock)
local first_key = hold_key(tag, owner, '1')
local found = grant_of(first_key)
if redis.call('hexists', lock, owner) == 0 then
  -- Another program removed the hash. The key of the hold would remain until its lease ends, so it is deleted here.
  if found == grant then
    redis.call('del', first_key)
  end
  return LOST
end
if found and found ~= grant and grant ~= '0' then
  return LOST
end

local answer, size = found and 0 or LOST, redis.call('hlen', lock)
-- If more than MANY fields are left, a release never shortens the lease of the lock. So it is enough to find one living
-- reader, and most readers are alive.
local reader = size > MANY + 1 and redis.call('hrandfield', lock)
local is_read = reader and reader ~= 'mode' and reader ~= owner and redis.call('pttl', hold_key(tag, reader, '1')) ~= -2
local mode = not is_read and redis.call('hget', lock, 'mode')
if is_read or mode == 'write' then
  redis.call('hdel', lock, owner)
  redis.call('del', first_key)
  return answer
end

local is_data = false
-- Two fields: the mode and this owner.
if mode and size == 2 then
  redis.call('del', lock, first_key)
else
  -- Returns the longest lease of the other readers. nil: there are none. Removes the dead ones. Fields that are not holders stay.
  local function longest_other()
    local fields, lasts_ms = redis.call('hgetall', lock), nil
    for i = 1, #fields, 2 do
      local field, value = fields[i], fields[i + 1]
      if field ~= owner and is_holder(field, value) then
        local left_ms = longest(tag, field, tonumber(value))
        if left_ms == -2 then
          redis.call('hdel', lock, field)
        else
          lasts_ms = math.max(lasts_ms or 0, left_ms)
        end
      end
    end
    return lasts_ms
  end

  -- Check the other readers before this hold is removed. If the user lacks a right for this check, the script fails here. A
  -- later failure would leave a lock without readers.
  local other_ms = reader_ms(lock, tag, owner)
  if other_ms == NOT_A_LOCK then
    other_ms = longest_other()
  end
  if other_ms then
    -- When a reader died, Java's writers wait for the expiry of the hash. A long lease that was released early must not delay
    -- them, so the expiry is lowered to the longest lease that is left. That is not worth its cost if another reader's lease is
    -- about as long, or if there are many readers. The 5 ms: both expiries were set together, but the clock can advance within a
    -- script.
    local left_ms = redis.call('pttl', lock)
    local is_too_long = left_ms > tonumber(usual_ms) and longest(tag, owner, 1) > left_ms - 5 and other_ms < left_ms / 2
    redis.call('hdel', lock, owner)
    redis.call('del', first_key)
    if is_too_long and redis.call('hlen', lock) <= MANY then
      redis.call('pexpire', lock, longest_other() or 0)
    end
    return answer
  end
  redis.call('hdel', lock, 'mode', owner)
  is_data = keeps_data(lock)
  redis.call('del', first_key)
end
-- pcall: the lock is free already, so a refused message must not make the script fail.
local told = redis.pcall('publish', channel, '0')
return found and (is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD) or answer
