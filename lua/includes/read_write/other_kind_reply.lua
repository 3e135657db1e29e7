-- With  is_holder replies
-- Returns the reply of a script that finds a key which is no read-write lock, with this value in its field "mode".
local function other_kind_reply(lock, mode)
  local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
  return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
end
