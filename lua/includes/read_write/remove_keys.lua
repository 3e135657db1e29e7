-- With  read_write/hold_key
-- Removes the keys of the holds with these numbers.
local function remove_keys(tag, reader, first, last)
  for number = first, last do
    redis.call('del', hold_key(tag, reader, number))
  end
end
