-- With  read_write/hold_key
-- Returns the number of the grant that the hold of a reader belongs to. nil: there is none, whatever the hash says.
local function grant_of(tag, reader)
  -- pcall: a key that was replaced by another type is no hold.
  local grant = redis.pcall('get', hold_key(tag, reader, 1))
  return type(grant) == 'string' and grant or nil
end
