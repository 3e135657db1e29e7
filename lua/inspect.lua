#!lua flags=allow-oom
--[[
  Everything a lock's hash says, whatever kind of lock it is.

  KEYS[1]  lock  hash: owner -> hold count, and for a read-write lock "mode"; and the keys of readers' holds

  With  read/shared.lua

  Returns
    list  per field of the hash four: its name, its value, milliseconds left of its lease (-1: no expiry, -2: a reader that
          is dead), and for a reader the number of its grant, else 0
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local found = redis.call('hgetall', lock)
local left_ms = redis.call('pttl', lock)
local is_read_write = redis.call('hexists', lock, 'mode') == 1
local answer = {}
for i = 1, #found, 2 do
  local field, value = found[i], found[i + 1]
  local lasts_ms, grant = left_ms, '0'
  if is_read_write and field ~= 'mode' and string.sub(field, -#':write') ~= ':write' then
    local keys, count = hold_keys(lock, field), tonumber(value) or 0
    lasts_ms, grant = longest(keys, count), grant_of(keys, count) or '0'
  end
  local row = #answer
  answer[row + 1], answer[row + 2], answer[row + 3], answer[row + 4] = field, value, lasts_ms, grant
end
return answer
