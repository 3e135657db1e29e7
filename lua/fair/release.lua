#!lua flags=allow-oom
--[[
  Ends an owner's hold on a fair lock, whatever its hold count is, and wakes the first waiter. An owner that waits leaves the queue. Also
  undoes an attempt.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: the waiters, in order
  KEYS[3]  scores   sorted set: waiter -> until when Java considers it alive, ms
  KEYS[4]  records  hash: waiter that is not Java's -> "<alive until, ms> <Java clients in front>"
  KEYS[5]  tickets  sorted set: waiter that is not Java's -> when it queued, µs
  KEYS[6]  channel  prefix of the channel of each waiter

  ARGV[1]  owner         text: the owner of the hold, or of the place in the queue

  With  keeps_data replies fair/head fair/leave_to_java

  Returns
    0            released, or left the queue: this owner no longer has a hold or a place
    LOST         this owner held nothing, and did not wait
    NOBODY_TOLD  released, or left the queue; no waiter could be told: this user has no right to look for one, or to publish
    BESIDE_DATA  released; the key keeps data that is no lock, without expiry
  Publishes  "0" on the channel of the first waiter, if the lock is free and this owner had a hold or a place. If too many dead
             waiters are in front, the next heartbeat publishes
  Repeating  changes nothing: an owner id is not used again after its hold ended
]]
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner = ARGV[1]

-- Leaves the queue. Returns false if this owner did not wait. LREM searches from the nearer end of the list.
local function leave()
  local rank = redis.call('zrank', tickets, owner)
  local from_front = not rank or rank < redis.call('zcard', tickets) / 2
  local left = redis.call('hdel', records, owner) + redis.call('zrem', scores, owner) + redis.call('zrem', tickets, owner)
  if left == 0 then
    return false
  end
  redis.call('lrem', queue, from_front and '1' or '-1', owner)
  leave_to_java(queue, scores, tickets)
  return true
end

local is_data = false
if redis.call('hdel', lock, owner) == 1 then
  is_data = keeps_data(lock) -- a holder has no place in the queue: its acquire removed the place
elseif not leave() then
  return LOST
elseif redis.call('exists', lock) == 1 then
  return 0
end
-- pcall, twice: the lock is free already, so a refused command must not make the script fail.
local is_known, first = pcall(head, queue, scores, records, tickets, nil)
local told = is_known and (not first or redis.pcall('publish', channel .. ':' .. first, '0'))
return is_data and BESIDE_DATA or (told == true or type(told) == 'number') and 0 or NOBODY_TOLD
