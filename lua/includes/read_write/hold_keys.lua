-- With  tag_of
-- Returns the prefix of the keys of a reader's holds. The holds are numbered from 1, and each has a key with its number. The
-- value is the number of the grant, and the expiry is the lease. The first key has the longest lease of all.
local function hold_keys(lock, reader)
  return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
