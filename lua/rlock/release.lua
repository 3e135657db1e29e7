#!lua flags=allow-oom
--[[
  Lowers an owner's hold to a given count. At 0, frees the lock and wakes a waiter. Also undoes an attempt.

  KEYS[1]  lock     hash: owner -> hold count

  ARGV[1]  owner    text: the owner of the hold
  ARGV[2]  keep     the target count, >= 0; what is left keeps its lease
  ARGV[3]  channel  where the waiters of this lock listen. Not in KEYS: then a lock could not be released while its slot moves

  With  end_hold replies

  Returns
    >= 0         released: the lock is free. The number of connections that the message reached
    LOWERED      this owner still holds it
    LOST         this owner holds nothing
    NOBODY_TOLD  released, but no waiter could be told: this user has no right to publish on the channel
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: the count is a target, and an owner id is not used again after its count was 0
]]
local lock = KEYS[1]
local owner, keep, channel = ARGV[1], ARGV[2], ARGV[3]

if keep ~= '0' then
  local count = tonumber(redis.call('hget', lock, owner))
  if not count then
    return LOST
  end
  if count > tonumber(keep) then
    redis.call('hset', lock, owner, keep)
  end
  return LOWERED
end
local is_data = end_hold(lock, owner)
if is_data == nil then
  return LOST
end
-- pcall: the lock is free already, so a refused message must not make the script fail.
local told = redis.pcall('publish', channel, '0')
return is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD or told
