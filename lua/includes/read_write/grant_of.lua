-- Returns the number of the grant that the hold of a reader belongs to, from the first key of the hold. nil: there is none, whatever the
-- hash says.
local function grant_of(first_key)
  -- pcall: a key that was replaced by another type is no hold.
  local grant = redis.pcall('get', first_key)
  return type(grant) == 'string' and grant or nil
end
