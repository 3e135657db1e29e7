-- With  replies
-- Returns LOST for a hold that a command did not find. After an error, returns its text: nobody knows whether the hold
-- is there.
local function lost_or_error(reply)
  -- If the key was replaced by another type, the hold is gone.
  local is_error = type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE'
  return is_error and reply.err or LOST
end
