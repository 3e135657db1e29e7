#!lua
--[[
  Acquires the write lock for an owner that holds nothing on it, if the lock is free or all readers are dead. If readers
  refuse a writer that has waited for long, its intent stops new readers. The only script that creates a write hold.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of readers' holds, and the intent
                    of a writer
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]  writer       text: "<client uuid>:<n>:write", never used for an earlier hold
  ARGV[2]  lease_ms     milliseconds, > 0
  ARGV[3]  turn_ms      milliseconds: if living readers refuse, new readers are stopped for this time. 0: they are not
  ARGV[4]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  create_hold occupied_reply replies tag_of read_write/intent_of read_write/reader_ms read_write/written_ms

  Returns
    nil           granted
    >= 0          held by others: milliseconds for which it stays held, unless a message says otherwise
    NO_KNOWN_END  the same, and it has no expiry
    OTHER_KIND    the key is a lock that is not a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock, or has a field that is not a holder
    LATE          valid_until has passed
  Repeating  a copy that finds its own hold answers "granted" and adds no hold: a writer with an intent attempts again under the same
             owner after a lost reply. A copy that runs after the hold was released creates an orphan, or an intent. The sender
             releases both until no copy can arrive. An intent that exists is not changed
]]
local lock, channel = KEYS[1], KEYS[2]
local writer, lease_ms, turn_ms, valid_until = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

if redis.call('time')[1] > valid_until then
  return LATE
end

local tag = tag_of(lock)
local intent = tag .. INTENT
if redis.call('exists', intent, lock) == 0 then
  create_hold(lock, lease_ms, 'mode', 'write', writer, '1')
  return nil
end

local mode = redis.call('hget', lock, 'mode')
if mode == 'write' then
  if redis.call('hexists', lock, writer) == 1 then
    redis.call('pexpire', lock, lease_ms, 'gt')
    return nil
  end
  return written_ms(lock)
end
if mode == 'read' then
  if redis.call('hlen', lock) == 1 then
    return NOT_A_LOCK
  end
  local left_ms = reader_ms(lock, tag)
  if left_ms then
    -- Beside data of another program, there is no intent: the sender reports an error and does not wait.
    if turn_ms > 0 and left_ms > 0 then
      -- NX: no writer makes an intent longer. So even if all writers die, readers are stopped for at most one turn in ten.
      local mine = 9 * turn_ms .. ' ' .. writer
      if not redis.call('set', intent, mine, 'px', 10 * turn_ms, 'nx') then
        -- This writer is perhaps the somebody on whose behalf a client set a shorter intent. So the writer replaces it
        -- by its own.
        local _, other = intent_of(intent)
        if other == SOMEBODY then
          redis.call('set', intent, mine, 'px', 10 * turn_ms)
        end
      end
    end
    return left_ms
  end
  redis.call('del', lock)
elseif redis.call('exists', lock) == 1 then
  return occupied_reply(lock, OTHER_KIND)
end
-- A grant ends the intent, whichever writer set it: another writer that still waits can set its own. Before the hold is created:
-- if the user lacks the right, the script fails here.
redis.call('del', intent)
create_hold(lock, lease_ms, 'mode', 'write', writer, '1')
return nil
