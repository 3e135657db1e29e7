-- Returns how many permits at the beginning of a list had ended before a time. The list has ids and ends, in the order
-- of the ends.
local function expired_among(listed, before_ms)
  for i = 2, #listed, 2 do
    if tonumber(listed[i]) >= before_ms then
      return i / 2 - 1
    end
  end
  return #listed / 2
end
