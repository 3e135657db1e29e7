-- Returns the id of a permit among these ids, which stand behind each other. An id has 16 bytes.
local function permit_of(ids, number)
  return string.sub(ids, 16 * number - 15, 16 * number)
end
