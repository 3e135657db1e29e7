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

  With  replies needs_right_to_expire tag_of read_write/writer read_write/intent_key read_write/hold_key read_write/grant_of
  With  read_write/others_of

  Returns
    nil           granted
    >= 0          another owner holds the write lock: milliseconds left of its lease. Or a writer waits: milliseconds for which
                  its intent stops new readers
    NO_KNOWN_END  another owner holds the write lock, without expiry
    LOST          this owner has a later hold
    OTHER_KIND    the key is a lock that is not a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    LATE          valid_until has passed
  Publishes  nothing
  Repeating  a copy that finds its own hold answers "granted" and adds no hold. A copy that runs after the hold was
             released creates an orphan. The sender releases this orphan until no copy can arrive
]]
-- Milliseconds for which a free lock is kept for somebody on whose behalf readers were stopped.
local COME_MS = 10

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('time')[1] > valid_until then
  return LATE
end

local tag = tag_of(lock)
local intent, first_key = intent_key(tag), hold_key(tag, owner, '1')
local there = redis.call('exists', intent, lock)
if there == 0 then
  needs_right_to_expire(lock, lease_ms)
  redis.call('set', first_key, grant, 'px', lease_ms)
  redis.call('hset', lock, 'mode', 'read', owner, '1')
  redis.call('pexpire', lock, lease_ms)
  return nil
end

local mode = redis.call('hget', lock, 'mode')
local is_held = (mode == 'read' or mode == 'write') and redis.call('hexists', lock, owner) == 1
if mode == 'read' and there == 1 and not is_held then
  -- Others read, and no writer waits.
  local left_ms = redis.call('pttl', lock)
  -- Otherwise the lock has no expiry, and is perhaps data of another program that has a field "mode".
  if left_ms >= 0 then
    if left_ms < tonumber(lease_ms) then
      redis.call('pexpire', lock, lease_ms, 'gt')
    else
      needs_right_to_expire(lock, lease_ms)
    end
    redis.call('set', first_key, grant, 'px', lease_ms)
    redis.call('hset', lock, owner, '1')
    return nil
  end
end

local others = others_of(lock, tag)
if mode and mode ~= 'read' and mode ~= 'write' or not mode and redis.call('exists', lock) == 1 then
  return others.kind_reply(mode)
end
if mode == 'write' and redis.call('hexists', lock, owner .. WRITER) == 0 then
  return others.written_ms()
end

-- Returns the milliseconds for which the intent of a writer stops new readers. 0: it does not, or there is none.
local function stopped_ms()
  local left_ms = redis.call('pttl', intent)
  if left_ms <= 0 then
    return 0
  end
  -- pcall: a key that was replaced by another type stops nobody.
  local value = redis.pcall('get', intent)
  local calm_ms, writer = string.match(type(value) == 'string' and value or '', '^(%d+) ?(.*)$')
  local wait_ms = calm_ms and math.max(left_ms - calm_ms, 0) or 0
  if wait_ms > COME_MS and not mode and writer == SOMEBODY then
    -- The lock is free, and its release told whoever waits. If nobody comes within this time, new readers are admitted.
    wait_ms = COME_MS
    redis.call('pexpire', intent, calm_ms + wait_ms)
  end
  return wait_ms
end

local found = is_held and grant_of(tag, owner)
if found == grant then
  redis.call('pexpire', first_key, lease_ms, 'gt')
  redis.call('pexpire', lock, lease_ms, 'gt')
  return nil
end
-- Within one write hold, an owner can acquire the read lock, release it and acquire it again. If the found grant is later
-- than this one, this call is a late copy. If it is earlier, it belongs to a hold that was released.
if found and tonumber(found) > tonumber(grant) then
  return LOST
end
if mode ~= 'write' and not found then
  local wait_ms = stopped_ms()
  if wait_ms > 0 then
    return wait_ms
  end
end
-- If there is no lock, this changes nothing. A user without the right to set an expiry fails here: a later failure
-- would leave a hold without expiry.
local is_raised = redis.call('pexpire', lock, lease_ms, 'gt') == 1
-- A lock has an expiry. A hash without an expiry is perhaps data of another program that has a field "mode".
if mode == 'read' and not is_raised and redis.call('pttl', lock) == -1
  and (redis.call('hlen', lock) == 1 or others.reader_ms(owner) == NOT_A_LOCK) then
  return NOT_A_LOCK
end
redis.call('set', first_key, grant, 'px', lease_ms)
redis.call('hset', lock, 'mode', mode or 'read', owner, '1')
if not mode then
  redis.call('pexpire', lock, lease_ms)
end
return nil
