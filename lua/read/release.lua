#!lua flags=allow-oom
--[[
  Lowers a read hold to a given count. With the last living reader, frees the lock and wakes a waiter. Also undoes an
  attempt.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of the holds
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number of the grant that the hold belongs to; 0: any
  ARGV[3]  keep      the target count, >= 0; the first hold keeps the longest lease
  ARGV[4]  usual_ms  milliseconds: if this hold alone made the lock's lease longer than this, the lease is shortened

  With  replies read_write/is_side read_write/hold_keys read_write/count_of read_write/grant_of read_write/longest
  With  read_write/remove_keys read_write/other_reader_ms read_write/free_lock

  Returns
    0            released: this owner no longer holds the read lock
    LOWERED      this owner still holds it
    LOST         this owner held nothing, or a later hold
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: the count is a target, and the number of the grant is never used again
]]
-- With more fields than this, the readers are not checked one by one.
local MANY = 4

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, keep, usual_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- As other_reader_ms, for a hash that also has fields that are not holders: checks all fields, and returns the longest lease.
local function reader_ms_beside_data()
  local fields, lasts_ms = redis.call('hgetall', lock), nil
  for i = 1, #fields, 2 do
    local reader, count = fields[i], fields[i + 1]
    if reader ~= 'mode' and reader ~= owner and is_side(reader, count) then
      local left_ms = longest(hold_keys(lock, reader), tonumber(count))
      if left_ms == -2 then
        redis.call('hdel', lock, reader)
      else
        lasts_ms = math.max(lasts_ms or 0, left_ms)
      end
    end
  end
  return lasts_ms
end

local keys, count = hold_keys(lock, owner), count_of(lock, owner)
local found = grant_of(keys, count)
if count == 0 then
  -- Another program removed the hash. The keys of the hold would remain until their leases end, so they are deleted here.
  local i = 1
  while redis.call('get', keys .. i) == grant do
    redis.call('del', keys .. i)
    i = i + 1
  end
  return LOST
end
if found and found ~= grant and grant ~= '0' then
  return LOST
end
if found and keep > 0 then
  if keep < count then
    redis.call('set', keys .. '1', found, 'px', longest(keys, count))
    remove_keys(keys, keep + 1, count)
    redis.call('hset', lock, owner, keep)
  end
  return LOWERED
end

local answer = found and 0 or LOST
if redis.call('hget', lock, 'mode') == 'write' then
  redis.call('hdel', lock, owner)
  remove_keys(keys, 1, count)
  return answer
end
-- Check the other readers before this hold is removed. If the user lacks a right for this check, the script fails here. A
-- later failure would leave a lock without readers.
local other_ms = other_reader_ms(lock, owner)
if other_ms == NOT_A_LOCK then
  other_ms = reader_ms_beside_data()
end
if not other_ms then
  local is_data = free_lock(lock, owner)
  remove_keys(keys, 1, count)
  -- pcall: the lock is free already, so a refused message must not make the script fail.
  local told = redis.pcall('publish', channel, '0')
  return found and (is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD) or answer
end
-- When a reader died, Java's writers wait for the expiry of the hash. A long lease that was released early must not delay
-- them, so the expiry is lowered to the longest lease that is left. That is not worth its cost if another reader's lease is
-- about as long, or if there are many readers. The 5 ms: both expiries were set together, but the clock can advance within a
-- script.
local left_ms = redis.call('pttl', lock)
local is_too_long = left_ms > usual_ms and longest(keys, count) > left_ms - 5 and other_ms < left_ms / 2
redis.call('hdel', lock, owner)
remove_keys(keys, 1, count)
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
