-- Shared by the scripts of a read-write lock. It is inserted behind the first line of each of them.

-- What the keys of a reader's holds begin with. Its holds are numbered from 1; each has a key of that number, with the
-- lock's hash tag. The value says which grant it is of, and its expiry is the lease. The first lasts as long as any.
local function hold_keys(lock, reader)
  local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return tag .. ':' .. reader .. ':rwlock_timeout:'
end

-- Which grant the holds are of. None: the reader is dead, whatever the hash says.
local function grant_of(keys, count)
  for i = 1, count do
    -- pcall: what somebody replaced by another type is no hold of ours.
    local grant = redis.pcall('get', keys .. i)
    if type(grant) == 'string' then
      return grant
    end
  end
  return nil
end

-- A key without expiry, which only somebody else's command can make, lasts this long.
local TEN_YEARS_MS = 315360000000

-- Milliseconds until the last of the keys ends, at least 1. -2: none is there.
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

-- How many holds a reader has by the hash.
local function count_of(lock, reader)
  return tonumber(redis.call('hget', lock, reader)) or 0
end

local WRITER = ':write'

local function is_writer(field)
  return string.sub(field, -#WRITER) == WRITER
end

-- Whether a field and its value are those of a holder, and not somebody else's data.
local function is_holder(field, value)
  local owner = is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field
  return string.find(owner, '^.+:%d+$') and string.find(value, '^%d+$')
end

-- The answer to whoever finds this in the field "mode" of a key that exists, where a read-write lock has another value.
local function no_read_write_lock(lock, mode)
  local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
  return #fields == 2 and not is_writer(fields[1]) and is_holder(fields[1], fields[2]) and -3 or -5
end

-- Milliseconds for which some reader lasts that is alive, and is not the one given. None: nobody else reads. The dead that
-- are met are removed, so each costs once. -5: there is a field that is no holder's.
local function other_reader_ms(lock, one)
  local met_dead = true
  while met_dead do
    met_dead = false
    -- Three, as one may be the mode, and one the reader given.
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

-- The same, where there are fields that are no holder's: it looks at all of them.
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

-- Nobody holds the lock any more: these fields are the last of it. True: the key keeps somebody else's data. That stays as it
-- is, and does not end with the lease. What another kind of lock has there ends with its own.
local function free(lock, ...)
  redis.call('hdel', lock, 'mode', ...)
  local is_data = redis.call('exists', lock) == 1 and no_read_write_lock(lock) == -5
  if is_data then
    redis.call('persist', lock)
  end
  return is_data
end
