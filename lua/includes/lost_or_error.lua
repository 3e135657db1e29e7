-- With  replies
-- Returns the reply for a hold that a command did not find. The error of the command, as text: nobody knows whether the hold is there.
local function lost_or_error(reply)
  -- A key that was replaced by another type is no hold.
  local is_error = type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE'
  return is_error and reply.err or LOST
end
