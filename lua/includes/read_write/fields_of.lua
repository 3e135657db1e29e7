-- With  is_holder replies read_write/writer
-- Returns functions that look at the fields of a hash, whoever they belong to. A script that needs none of them, such as one that finds
-- the lock free, does not make them: that would cost as much as a command.
local function fields_of(lock)
  local it = {}

  local function is_writer(field)
    return string.sub(field, -#WRITER) == WRITER
  end

  -- Returns whether a field and its value are those of a reader or a writer.
  function it.is_side(field, value)
    return is_holder(is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field, value)
  end

  -- Returns the reply of a script that finds a key which is no read-write lock, with this value in its field "mode".
  function it.kind_reply(mode)
    local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
    return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
  end

  -- Returns the milliseconds left of a write lock, -1 if it has no expiry, or NOT_A_LOCK if no field is a writer: then the hash is
  -- data of another program that has a field "mode". A write lock has three fields at most: the mode, the writer and its read hold.
  function it.written_ms()
    local fields = redis.call('hrandfield', lock, '3', 'withvalues')
    for i = 1, #fields, 2 do
      if is_writer(fields[i]) and it.is_side(fields[i], fields[i + 1]) then
        return redis.call('pttl', lock)
      end
    end
    return NOT_A_LOCK
  end

  -- Removes these fields, the last of a lock that is free now. Returns whether the key keeps data of another program. That
  -- data stays, but the key loses its expiry, which was the lease. A field of another kind of lock keeps the expiry.
  function it.free_lock(...)
    redis.call('hdel', lock, 'mode', ...)
    local is_data = redis.call('exists', lock) == 1 and it.kind_reply() == NOT_A_LOCK
    if is_data then
      redis.call('persist', lock)
    end
    return is_data
  end

  return it
end
