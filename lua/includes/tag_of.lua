-- Returns what the lock's other keys and channels have in common: its hash tag. So a cluster keeps all of them in one slot.
local function tag_of(lock)
  return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
