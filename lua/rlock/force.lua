#!lua flags=allow-oom
--[[
  End the hold of an owner that is not ours, whatever its count, and wake a waiter.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  owner    text: the owner whose hold shall end, as the lock's hash named it

  Returns
    2     released, but no waiter could be told: this user may not publish on the channel
    1     released: the lock is free
    -2    lost: this owner holds nothing (any more)
  Publishes  "0" on channel, if the lock became free
  Repeating  changes nothing: the owner is named, so a copy that runs late can not end a later owner's hold
]]
local lock, channel = KEYS[1], KEYS[2]
local owner = ARGV[1]

if redis.call('hexists', lock, owner) == 0 then
  return -2
end
redis.call('del', lock)
local told = redis.pcall('publish', channel, '0')
return type(told) == 'table' and 2 or 1
