#!lua flags=allow-oom
--[[
  Lists a part of a lock's hash, whatever kind of lock it is.

  KEYS[1]  lock    hash: owner -> hold count, and for a read-write lock "mode"; and the keys of readers' holds

  ARGV[1]  cursor  where to continue; 0: at the beginning

  With  is_holder tag_of read_write/hold_key read_write/grant_of read_write/longest

  Returns
    list  the cursor of the next part (0: there is none), and the mode (empty: there is none). Then four items for each field of
          the hash: its name; its value; milliseconds left of its lease (-1: no expiry, -2: a dead reader); and the number of
          its grant (0: it is no living reader). A field can be in more than one part
    the error WRONGTYPE and the type, if the key is no hash and this user may ask for its type
  Repeating  changes nothing
]]
local lock = KEYS[1]
local cursor = ARGV[1]

-- How many keys of read holds this run still looks at. The hash says how many holds a reader has, and it can be data of another
-- program, in which a number means something else. The first key has the longest lease.
local budget = 1000

local mode, left_ms = redis.pcall('hget', lock, 'mode'), redis.call('pttl', lock)
if type(mode) == 'table' then
  -- The error does not name the type of the key, so the script asks. pcall: this user can lack the right to ask.
  local found = redis.pcall('type', lock)
  if string.sub(mode.err, 1, 9) == 'WRONGTYPE' and found.ok then
    return { err = 'WRONGTYPE ' .. found.ok }
  end
  return mode
end
local is_read_write = mode == 'read' or mode == 'write'
local part = redis.call('hscan', lock, cursor, 'count', '100')
local found = part[2]
local answer = { part[1], mode or '' }
for i = 1, #found, 2 do
  local field, value = found[i], found[i + 1]
  local lasts_ms, grant = left_ms, '0'
  if is_read_write and is_holder(field, value) then
    local tag, count = tag_of(lock), math.min(tonumber(value), budget)
    budget = math.max(budget - count, 1)
    lasts_ms = longest(tag, field, count)
    if lasts_ms ~= -2 then
      grant = grant_of(hold_key(tag, field, 1)) or '0'
    else
      -- Perhaps the slot of the lock moves, and this server has the hash, but not the key of a living reader. Then the
      -- server refuses this command, which names both, and the reader is not reported as dead.
      redis.call('exists', lock, hold_key(tag, field, 1))
    end
  end
  local row = #answer
  answer[row + 1], answer[row + 2], answer[row + 3], answer[row + 4] = field, value, lasts_ms, grant
end
return answer
