#!lua flags=allow-oom
--[[
  Everything a lock's hash says, whatever kind of lock it is; but of readers only those that are alive.

  KEYS[1]  lock  hash: owner -> hold count, and for a read-write lock "mode"; and the keys of readers' holds

  With  read/shared.lua

  Returns
    list  milliseconds left of the lease (-1: no expiry, -2: the lock is free), then field, value, field, value …
  Publishes  nothing
  Repeating  changes nothing
]]
local lock = KEYS[1]

local found = redis.call('hgetall', lock)
local left_ms = redis.call('pttl', lock)
local mode = redis.call('hget', lock, 'mode')
if not mode then
  table.insert(found, 1, left_ms)
  return found
end

local answer, reads_ms = {}, -2
for i = 1, #found, 2 do
  local field, value = found[i], found[i + 1]
  local lasts_ms = left_ms
  if field ~= 'mode' and string.sub(field, -#':write') ~= ':write' then
    lasts_ms = longest(hold_keys(lock, field), tonumber(value) or 0)
    reads_ms = math.max(reads_ms, lasts_ms)
  end
  if lasts_ms ~= -2 then
    answer[#answer + 1] = field
    answer[#answer + 1] = value
  end
end
table.insert(answer, 1, mode == 'write' and left_ms or reads_ms)
return answer
