#!lua flags=allow-oom
--[[
  Deletes a semaphore with all its permits.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease

  ARGV[1]  total    how many permits those who wait can find, when one of them creates the semaphore
  ARGV[2]  channel  where the waiters of this semaphore listen. Not in KEYS: then no key with its name is needed

  With  replies semaphore/available_of

  Returns
    >= 0         how many keys there were
    NOT_A_LOCK   the key holds text that is no number
    NOBODY_TOLD  deleted, but no waiter could be told: this user has no right to publish on the channel
  Publishes  the total on channel, if there was a semaphore
  Repeating  deletes what is there when it runs
]]
local semaphore, permits = KEYS[1], KEYS[2]
local total, channel = ARGV[1], ARGV[2]

if available_of(semaphore) == false then
  return NOT_A_LOCK
end
-- Fails here if the key is no sorted set.
redis.call('zcard', permits)
local deleted = redis.call('del', semaphore) + redis.call('del', permits)
local told = 0
if deleted > 0 then
  told = redis.pcall('publish', channel, total)
end
return type(told) == 'table' and NOBODY_TOLD or deleted
