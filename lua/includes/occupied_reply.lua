-- With  is_holder replies
-- Returns the reply of a script that finds a key which its owner does not hold: left_ms if the hash is a lock that one owner
-- holds alone, otherwise OTHER_KIND or NOT_A_LOCK. Two fields are enough to decide, so a hash of any size costs the same.
local function occupied_reply(lock, left_ms)
  local fields = redis.call('hrandfield', lock, '2', 'withvalues')
  if #fields == 2 and is_holder(fields[1], fields[2]) then
    return left_ms
  end
  local mode = redis.call('hget', lock, 'mode')
  return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
