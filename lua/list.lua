#!lua flags=allow-oom,allow-cross-slot-keys
--[[
  Finds a part of the locks of this server.

  ARGV[1]  cursor   where to continue; 0: at the beginning
  ARGV[2]  pattern  text: which keys, as for SCAN
  ARGV[3]  of_type  text: the type of the keys. hash: the locks; string: the semaphores

  With  tag_of is_holder

  Returns
    list  the cursor of the next part (0: there is none). Then eight items for each key that can be a lock: the key; 1 for a
          lock that is or can be a read-write lock, 2 for a semaphore with permits in use, else 0; 1 if there is a counter, else 0;
          the waiters in the queue; the connections that listen to the channel; and for a lock that one owner holds alone the
          owner, its hold count, and milliseconds left of its lease (-1: no expiry). The owner is empty for other locks, and if
          this user may not ask for the lease. A key can be in more than one part
  Repeating  changes nothing
]]
-- About how many keys one command looks at. The server does nothing else meanwhile: 500 locks take it about 3 ms.
local COUNT = 500

-- The channels of a lock, of a read-write lock and of a semaphore, up to the tag.
local CHANNELS = { [0] = 'redisson_lock__channel:', 'redisson_rwlock:', 'redisson_sc:' }

local cursor, pattern, of_type = ARGV[1], ARGV[2], ARGV[3]

-- pcall everywhere: a key can be gone or under way to another server, and this user can lack a right to a key.

-- Returns a count, or 0 if the server or the rights of the user do not allow the question.
local function number(reply)
  return type(reply) == 'number' and reply or 0
end

-- Returns whether a key can be a lock: 2 for a semaphore, 1 for a read-write lock, 0 for another lock, nil for other
-- data. For 0, also returns the owner and the hold count. Two fields of a hash decide, so a hash of any size costs the
-- same. Any number can be a semaphore, so a semaphore must have permits in use. If the slot of a hash is still at
-- another server, the kind is unknown: 1.
local function kind(key, tag)
  if of_type == 'string' then
    return redis.pcall('exists', tag .. ':timeout') == 1 and 2 or nil
  end
  local fields = redis.pcall('hrandfield', key, '2', 'withvalues')
  if fields.err then
    return string.find(fields.err, 'non local key', 1, true) and 1 or nil
  end
  if #fields == 2 and is_holder(fields[1], fields[2]) then
    return 0, fields[1], fields[2]
  end
  local mode = redis.pcall('hget', key, 'mode')
  return (mode == 'read' or mode == 'write') and 1 or nil
end

-- Adds the connections that listen to the channels, which are in the order of the locks.
local function add_listeners(answer, command, channels)
  for first = 1, #channels, 1000 do
    local found = redis.pcall('pubsub', command, unpack(channels, first, math.min(first + 999, #channels)))
    for i = 2, found.err and 0 or #found, 2 do
      local item = 8 * (first + i / 2 - 2) + 6
      answer[item] = answer[item] + found[i]
    end
  end
end

local part = redis.call('scan', cursor, 'match', pattern, 'count', COUNT, 'type', of_type)
local answer, channels = { part[1] }, {}
for _, key in ipairs(part[2]) do
  local tag = tag_of(key)
  local found, owner, holds = kind(key, tag)
  if found then
    local row = #answer
    local left_ms = owner and redis.pcall('pttl', key)
    local is_known = type(left_ms) == 'number'
    channels[#channels + 1] = CHANNELS[found] .. tag
    answer[row + 1], answer[row + 2] = key, found
    answer[row + 3] = owner and number(redis.pcall('exists', 'redisson_lock_token:' .. tag)) or 0
    answer[row + 4] = owner and number(redis.pcall('llen', 'redisson_lock_queue:' .. tag)) or 0
    answer[row + 5] = 0
    answer[row + 6], answer[row + 7], answer[row + 8] = is_known and owner or '', holds or '', is_known and left_ms or 0
  end
end
add_listeners(answer, 'numsub', channels)
add_listeners(answer, 'shardnumsub', channels)
return answer
