-- Returns the key of a reader's hold with this number. The holds are numbered from 1, and each has a key. The value is the number of
-- the grant, and the expiry is the lease. The first key has the longest lease of all.
local function hold_key(tag, reader, number)
  return tag .. ':' .. reader .. ':rwlock_timeout:' .. number
end
