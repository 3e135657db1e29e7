#!lua flags=allow-oom
--[[
  Ends an owner's hold, whatever its hold count is, and wakes a waiter. Also undoes an attempt.

  KEYS[1]  lock     hash: owner -> hold count

  ARGV[1]  owner    text: the owner of the hold
  ARGV[2]  channel  where the waiters of this lock listen. Not in KEYS: then a lock could not be released while its slot moves

  With  keeps_data replies

  Returns
    >= 0         released: the lock is free. The number of connections that the message reached
    LOST         this owner holds nothing
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: an owner id is not used again after its hold ended
]]
local lock = KEYS[1]
local owner, channel = ARGV[1], ARGV[2]

if redis.call('hdel', lock, owner) == 0 then
  return LOST
end
local is_data = keeps_data(lock)
-- pcall: the lock is free already, so a refused message must not make the script fail.
local told = redis.pcall('publish', channel, '0')
return is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD or told
