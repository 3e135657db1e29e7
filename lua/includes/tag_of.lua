-- Returns the hash tag of the lock. All other keys and channels of the lock have it too, so a cluster keeps all of them
-- in one slot.
local function tag_of(lock)
  return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
