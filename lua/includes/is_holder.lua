-- Returns whether a field of a hash and its value are those of an owner and its hold count. An owner is a UUID, a colon and a
-- number, here and in Redisson: a field such as "item:1" is data of another program.
local function is_holder(field, value)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
