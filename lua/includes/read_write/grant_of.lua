-- With  read_write/hold_key
-- Returns the number of the grant that the holds belong to. nil: the reader is dead, whatever the hash says.
local function grant_of(tag, reader, count)
  for number = 1, count do
    -- pcall: a key that was replaced by another type is no hold.
    local grant = redis.pcall('get', hold_key(tag, reader, number))
    if type(grant) == 'string' then
      return grant
    end
  end
  return nil
end
