-- Returns the id with this number in a text of ids. Each id has 16 bytes.
local function permit_of(ids, number)
  return string.sub(ids, 16 * number - 15, 16 * number)
end
