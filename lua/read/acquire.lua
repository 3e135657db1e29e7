#!lua
--[[
  Acquires the read lock for an owner that does not hold it, if no other owner holds the write lock, and no intent of a
  waiting writer stops new readers. The only script that creates a read hold.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the key of the owner's hold, and the
                    intent of a writer
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]  owner        text: "<client uuid>:<n>", never used for an earlier hold, except by an owner that holds the write lock
  ARGV[2]  grant        number of the grant: never used before, and greater than the numbers of all earlier grants
  ARGV[3]  lease_ms     milliseconds, > 0
  ARGV[4]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  create_hold occupied_reply replies tag_of read_write/intent_of read_write/hold_key read_write/grant_of
  With  read_write/reader_ms read_write/written_ms

  Returns
    nil           granted
    >= 0          another owner holds the write lock: milliseconds left of its lease. Or a writer waits: milliseconds for which
                  its intent stops new readers
    NO_KNOWN_END  another owner holds the write lock, without expiry
    LOST          this owner has a later hold
    OTHER_KIND    the key is a lock that is not a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    LATE          valid_until has passed
  Repeating  begins the lease anew, and adds no hold. A copy that runs after the hold was released creates an orphan. The
             sender releases this orphan until no copy can arrive
]]
-- Milliseconds for which a free lock is kept for somebody on whose behalf readers were stopped.
local COME_MS = 10

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('time')[1] > valid_until then
  return LATE
end

local tag = tag_of(lock)
local intent, first_key = tag .. INTENT, hold_key(tag, owner, '1')
local there = redis.call('exists', intent, lock)
local mode = there > 0 and redis.call('hget', lock, 'mode')
if there > 0 and mode ~= 'read' and mode ~= 'write' and redis.call('exists', lock) == 1 then
  return occupied_reply(lock, OTHER_KIND)
end
if mode == 'write' and redis.call('hexists', lock, owner .. ':write') == 0 then
  return written_ms(lock)
end
-- Within one write hold, an owner can acquire the read lock, release it and acquire it again. If the found grant is later
-- than this one, this call is a late copy. If it is earlier, it belongs to a hold that was released.
local found = mode and grant_of(first_key)
if found and tonumber(found) > tonumber(grant) then
  return LOST
end
-- A writer that waits stops new readers.
if mode ~= 'write' and not found and there > (mode and 1 or 0) then
  local left_ms, calm_ms, writer = redis.call('pttl', intent), intent_of(intent)
  local wait_ms = calm_ms and math.max(left_ms - calm_ms, 0) or 0
  if wait_ms > COME_MS and not mode and writer == SOMEBODY then
    -- The lock is free, and its release told whoever waits. If nobody comes within this time, new readers are admitted.
    wait_ms = COME_MS
    redis.call('pexpire', intent, calm_ms + wait_ms)
  end
  if wait_ms > 0 then
    return wait_ms
  end
end
if mode then
  -- A user without the right to set an expiry fails here: a later failure would leave a hold without expiry.
  local is_raised = redis.call('pexpire', lock, lease_ms, 'gt') == 1
  -- A lock has an expiry. A hash without an expiry is perhaps data of another program that has a field "mode".
  if mode == 'read' and not is_raised and redis.call('pttl', lock) == -1
    and (redis.call('hlen', lock) == 1 or reader_ms(lock, tag, owner) == NOT_A_LOCK) then
    return NOT_A_LOCK
  end
end
redis.call('set', first_key, grant, 'px', lease_ms)
if mode then
  redis.call('hset', lock, owner, '1')
else
  create_hold(lock, lease_ms, 'mode', 'read', owner, '1')
end
return nil
