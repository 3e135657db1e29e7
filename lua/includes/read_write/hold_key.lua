-- Returns the key of a reader's hold with this number. A reader of ours has only the key with the number 1, whatever its hold count: its
-- value is the number of the grant, and its expiry is the lease. A reader of Redisson has a key for each of its holds.
local function hold_key(tag, reader, number)
  return tag .. ':' .. reader .. ':rwlock_timeout:' .. number
end
