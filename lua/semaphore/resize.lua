#!lua flags=allow-oom
--[[
  Sets the total of a semaphore. Permits in use stay: a smaller total takes effect as they come back.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease

  ARGV[1]  total    how many permits the semaphore has from now on
  ARGV[2]  channel  where the waiters of this semaphore listen. Not in KEYS: then no key with its name is needed

  With  replies semaphore/available_of

  Returns
    list         the number of permits that are available now, negative if more are in use than the total; and the total before
    NOT_A_LOCK   the key holds text that is no number
    NOBODY_TOLD  done, but no waiter could be told: this user has no right to publish on the channel
  Publishes  the number of available permits on channel, if it changed and is > 0. Also if there are fewer than before: who wants more
             than the total leaves, and those behind perhaps want fewer
  Repeating  changes nothing: the total is a target
]]
local semaphore, permits = KEYS[1], KEYS[2]
local total, channel = tonumber(ARGV[1]), ARGV[2]

local before = available_of(semaphore)
if before == false then
  return NOT_A_LOCK
end
local in_use = redis.call('zcard', permits)
local available = total - in_use
if not before then
  redis.call('set', semaphore, available)
elseif available ~= before then
  redis.call('incrby', semaphore, available - before)
end
local told = 0
if available > 0 and available ~= before then
  told = redis.pcall('publish', channel, available)
end
return type(told) == 'table' and NOBODY_TOLD or { available, before and before + in_use or total }
