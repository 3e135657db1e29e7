#!lua flags=allow-oom,allow-cross-slot-keys
--[[
  Finds a part of the locks of this server.

  ARGV[1]  cursor      where to continue; 0: at the beginning
  ARGV[2]  pattern     text: which keys, as for SCAN
  ARGV[3]  count       about how many keys to look at
  ARGV[4]  of_type     text: the type of the keys. hash: the locks; string: the semaphores
  ARGV[5]  queue       text: the queue of a fair lock, up to the colon
  ARGV[6]  counter     text: the counter of a fenced lock, up to the colon
  ARGV[7]  channel     text: the channel of a lock, up to the colon
  ARGV[8]  rw_channel  text: the channel of a read-write lock, up to the colon
  ARGV[9]  sc_channel  text: the channel of a semaphore, up to the colon

  With  tag_of is_holder

  Returns
    list  the cursor of the next part (0: there is none). Then five items for each key that can be a lock: the key; 1 for a
         lock that is or can be a read-write lock, 2 for a semaphore with permits in use, else 0; 1 if there is a counter, else 0;
         the waiters in the queue; and the connections that listen to the channel. A key can be in more than one part
  Publishes  nothing
  Repeating  changes nothing
]]
local cursor, pattern, count, of_type, queue, counter, channel, rw_channel, sc_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- pcall everywhere: a key can be gone or under way to another server, and this user can lack a right to it.

-- What was counted, or 0 if the server or the user's rights do not allow it.
local function number(reply)
  return type(reply) == 'number' and reply or 0
end

-- The connections that listen to a channel.
local function listeners(reply)
  return reply.err and 0 or number(reply[2])
end

-- Whether a key can be a lock: 2 for a semaphore, 1 for a read-write lock, 0 for another one, nil for other data. Of a hash, it looks
-- at two fields, whatever the size. Any number can be a semaphore: so it must have permits. Of a hash whose slot is still at another
-- server, nothing is known.
local function kind(key, tag)
  if of_type == 'string' then
    return redis.pcall('exists', tag .. ':timeout') == 1 and 2 or nil
  end
  local mode = redis.pcall('hget', key, 'mode')
  local is_under_way = type(mode) == 'table' and string.find(mode.err, 'non local key', 1, true)
  if mode == 'read' or mode == 'write' or is_under_way then
    return 1
  end
  local fields = redis.pcall('hrandfield', key, '2', 'withvalues')
  if #fields == 2 and is_holder(fields[1], fields[2]) then
    return 0
  end
  return nil
end

local part = redis.call('scan', cursor, 'match', pattern, 'count', count, 'type', of_type)
local answer = { part[1] }
for _, key in ipairs(part[2]) do
  local tag = tag_of(key)
  local found = kind(key, tag)
  if found then
    local wakes = ({ [0] = channel, rw_channel, sc_channel })[found] .. ':' .. tag
    local row = #answer
    answer[row + 1], answer[row + 2] = key, found
    answer[row + 3] = number(redis.pcall('exists', counter .. ':' .. tag))
    answer[row + 4] = number(redis.pcall('llen', queue .. ':' .. tag))
    answer[row + 5] = listeners(redis.pcall('pubsub', 'numsub', wakes)) + listeners(redis.pcall('pubsub', 'shardnumsub', wakes))
  end
end
return answer
