#!lua flags=allow-oom
--[[
  Lower a read hold to a given count. With the last reader that is alive, free the lock and wake a waiter. Also the undo
  of an attempt.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of the holds
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number that the hold was acquired with; 0: whatever it was
  ARGV[3]  keep      holds that shall be left, >= 0; the first keeps the longest lease
  ARGV[4]  usual_ms  milliseconds: a lock that lasts longer for the sake of this hold is made to end earlier

  With  read/shared.lua

  Returns
    3     released; the key keeps data that is no lock, without expiry
    2     released, but no waiter could be told: this user may not publish on the channel
    1     released: this owner does not read any more
    0     lowered: this owner still does
    -2    lost: this owner held nothing, or a later hold
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: the count is a target, and the number of the grant is never used again
]]
-- More readers than this are not looked at one by one.
local MANY = 4

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, keep, usual_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local keys, count = hold_keys(lock, owner), count_of(lock, owner)
local found = grant_of(keys, count)
if count == 0 then
  -- Somebody removed the hash. What is left of the hold would last as long as its lease.
  local i = 1
  while redis.call('get', keys .. i) == grant do
    redis.call('del', keys .. i)
    i = i + 1
  end
  return -2
end
if found and found ~= grant and grant ~= '0' then
  return -2
end
if found and keep > 0 then
  if keep < count then
    redis.call('set', keys .. '1', found, 'px', longest(keys, count))
    remove(keys, keep + 1, count)
    redis.call('hset', lock, owner, keep)
  end
  return 0
end

local answer = found and 1 or -2
if redis.call('hget', lock, 'mode') == 'write' then
  redis.call('hdel', lock, owner)
  remove(keys, 1, count)
  return answer
end
-- While this one still reads: a user who may not look at others is stopped here, and not later, where a lock without
-- readers would be left.
local other_ms = other_reader_ms(lock, owner)
if other_ms == -5 then
  other_ms = reader_ms_beside_data(lock, owner)
end
if not other_ms then
  local is_data = free(lock, owner)
  remove(keys, 1, count)
  -- pcall: the lock is free already, and must not be reported as held.
  local told = redis.pcall('publish', channel, '0')
  return found and (is_data and 3 or type(told) == 'table' and 2) or answer
end
-- Java's writers wait for the expiry of the hash when a reader died. A long lease that was given back early must not
-- hold them up; but who is left and lasts about as long is not worth to look at all, and many are too many to look at. The
-- two expiries were set together, but the clock may go on within a script.
local left_ms = redis.call('pttl', lock)
local is_too_long = left_ms > usual_ms and longest(keys, count) > left_ms - 5 and other_ms < left_ms / 2
redis.call('hdel', lock, owner)
remove(keys, 1, count)
if is_too_long and redis.call('hlen', lock) <= MANY then
  left_ms = 0
  for _, reader in ipairs(redis.call('hkeys', lock)) do
    if reader ~= 'mode' then
      left_ms = math.max(left_ms, longest(hold_keys(lock, reader), count_of(lock, reader)))
    end
  end
  redis.call('pexpire', lock, left_ms)
end
return answer
