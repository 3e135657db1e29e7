-- With  is_holder replies
-- Returns the milliseconds left of a write lock, -1 if it has no expiry, or NOT_A_LOCK if no field is a writer: then the hash is
-- data of another program that has a field "mode". A write lock has three fields at most: the mode, the writer and its read hold.
local function written_ms(lock)
  local fields = redis.call('hrandfield', lock, '3', 'withvalues')
  for i = 1, #fields, 2 do
    local owner = string.match(fields[i], '^(.*):write$')
    if owner and is_holder(owner, fields[i + 1]) then
      return redis.call('pttl', lock)
    end
  end
  return NOT_A_LOCK
end
