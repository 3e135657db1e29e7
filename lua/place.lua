#!lua flags=allow-oom
--[[
  Tells which place a waiter has in the queue of a fair lock.

  KEYS[1]  queue   list: the waiters, in order

  ARGV[1]  waiter  text: the waiter

  Returns
    >= 0  its place, from 1 on; 0: it has none
  Repeating  changes nothing
]]
local queue = KEYS[1]
local waiter = ARGV[1]

for place, other in ipairs(redis.call('lrange', queue, 0, -1)) do
  if other == waiter then
    return place
  end
end
return 0
