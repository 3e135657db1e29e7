-- What the scripts of a read-write lock share. It is put behind the first line of each of them.

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

-- Milliseconds for which some reader lasts that is alive, and is not the one given. None: nobody else reads. The dead that
-- are met are dropped, so each costs once.
local function other_reader_ms(lock, one)
  local met_dead = true
  while met_dead do
    met_dead = false
    -- Three, as one may be the mode, and one the reader given.
    local found = redis.call('hrandfield', lock, '3', 'withvalues')
    for i = 1, #found, 2 do
      local reader = found[i]
      if reader ~= 'mode' and reader ~= one then
        local lasts_ms = longest(hold_keys(lock, reader), tonumber(found[i + 1]) or 0)
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
