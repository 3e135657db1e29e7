-- Returns the hold count of a reader or a writer, as the hash states it.
local function count_of(lock, field)
  return tonumber(redis.call('hget', lock, field)) or 0
end
