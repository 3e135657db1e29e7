-- Shared by the scripts of a read-write lock. This file is inserted after the first line of each script.

-- Returns the beginning of the lock's other keys. It has the lock's hash tag, so a cluster keeps all keys in one slot.
local function tag_of(lock)
  return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end

-- Returns the prefix of the keys of a reader's holds. The holds are numbered from 1, and each has a key with its number. The
-- value is the number of the grant, and the expiry is the lease. The first key has the longest lease of all.
local function hold_keys(lock, reader)
  return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end

-- Returns the key of the intent of a writer that readers kept waiting. The intent lasts for ten turns, and stops new readers
-- during the first turn. Its value is the milliseconds of the other nine turns, a space, and the writer.
local function intent_key(lock)
  return tag_of(lock) .. ':lockkeeper_intent'
end

-- Returns the number of the grant that the holds belong to. nil: the reader is dead, whatever the hash says.
local function grant_of(keys, count)
  for i = 1, count do
    -- pcall: a key that was replaced by another type is no hold.
    local grant = redis.pcall('get', keys .. i)
    if type(grant) == 'string' then
      return grant
    end
  end
  return nil
end

-- A key without expiry counts as if it had this one. Only a command of another program can remove an expiry.
local TEN_YEARS_MS = 315360000000

-- Returns the milliseconds until the last of the keys ends, at least 1. -2: there is none.
local function longest(keys, count)
  local longest_ms = -2
  for i = 1, count do
    local left_ms = redis.call('pttl', keys .. i)
    if left_ms == -1 then
      longest_ms = TEN_YEARS_MS
    elseif left_ms >= 0 then
      longest_ms = math.max(longest_ms, left_ms, 1)
    end
  end
  return longest_ms
end

local function remove(keys, first, last)
  for i = first, last do
    redis.call('del', keys .. i)
  end
end

-- Returns the hold count of a reader, as the hash states it.
local function count_of(lock, reader)
  return tonumber(redis.call('hget', lock, reader)) or 0
end

local WRITER = ':write'

local function is_writer(field)
  return string.sub(field, -#WRITER) == WRITER
end

-- Returns whether a field and its value are those of a holder, and not data of another program. An owner is a UUID, a colon
-- and a number, here and in Redisson.
local function is_holder(field, value)
  local owner = is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field
  return string.find(owner, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end

-- Returns the reply of a script that finds a key which is no read-write lock, with this value in its field "mode".
local function no_read_write_lock(lock, mode)
  local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
  return #fields == 2 and not is_writer(fields[1]) and is_holder(fields[1], fields[2]) and -3 or -5
end

-- Returns the milliseconds left of a write lock, -1 if it has no expiry, or -5 if no field is a writer: then the hash is data
-- of another program that has a field "mode". A write lock has three fields at most: the mode, the writer and its read hold.
local function written_ms(lock)
  local fields = redis.call('hrandfield', lock, '3', 'withvalues')
  for i = 1, #fields, 2 do
    if is_writer(fields[i]) and is_holder(fields[i], fields[i + 1]) then
      return redis.call('pttl', lock)
    end
  end
  return -5
end

-- Returns the milliseconds left of the lease of a living reader other than the given one. nil: there is none. -5: a field is
-- not a holder. Dead readers found on the way are removed, so each dead reader costs time only once.
local function other_reader_ms(lock, one)
  local met_dead = true
  while met_dead do
    met_dead = false
    -- Three fields, because one can be the mode and one the given reader.
    local found = redis.call('hrandfield', lock, '3', 'withvalues')
    for i = 1, #found, 2 do
      local reader, count = found[i], found[i + 1]
      if reader ~= 'mode' and reader ~= one then
        if not is_holder(reader, count) then
          return -5
        end
        local lasts_ms = longest(hold_keys(lock, reader), tonumber(count))
        if lasts_ms ~= -2 then
          return lasts_ms
        end
        redis.call('hdel', lock, reader)
        met_dead = true
      end
    end
  end
  return nil
end

-- The same for a hash that also has fields that are not holders: checks all fields, and returns the longest lease.
local function reader_ms_beside_data(lock, one)
  local fields, lasts_ms = redis.call('hgetall', lock), nil
  for i = 1, #fields, 2 do
    local reader, count = fields[i], fields[i + 1]
    if reader ~= 'mode' and reader ~= one and is_holder(reader, count) then
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

-- Removes these fields, the last of a lock that is free now. Returns whether the key keeps data of another program. That
-- data stays, but the key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
local function free(lock, ...)
  redis.call('hdel', lock, 'mode', ...)
  local is_data = redis.call('exists', lock) == 1 and no_read_write_lock(lock) == -5
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
