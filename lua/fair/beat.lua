#!lua flags=allow-oom
--[[
  Keep the places of waiters of one process in the queue of a fair lock, drop the dead before them, and if the lock is
  free tell the first.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  queue    list: who waits, in order
  KEYS[3]  scores   sorted set: who waits -> until when Java takes it for alive
  KEYS[4]  places   hash: who waits and is not Java's -> "<alive until, ms> <ticket, µs>"
  KEYS[5]  channel  what the channels of all waiters begin with

  ARGV[1]  allowance_ms  milliseconds for which a waiter counts as alive
  ARGV[2]  java_wait_ms  milliseconds: the longest that a Java client waits
  ARGV[3]  owners        text: the waiters, with spaces between them

  With  fair/shared.lua

  Returns
    list  per waiter 2 (it is the first, and the lock is free), 1 (its place is kept) or 0 (it has none any more)
  Publishes  "0" on the channel of the first in the queue, if the lock is free
  Repeating  changes nothing but the time. A copy that runs after a waiter left finds no place of it
]]
local lock, queue, scores, places, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local allowance_ms, java_wait_ms, owners = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local now = server_time()
local kept, ours = {}, {}
for owner in string.gmatch(owners, '%S+') do
  local place = redis.call('hget', places, owner)
  if place then
    local ticket = ticket_of(place)
    if not redis.call('zscore', scores, owner) and not redis.call('lpos', queue, owner) then
      put_back(queue, places, owner, ticket)
    end
    record(places, owner, ticket, now, allowance_ms)
    ours[owner] = #kept + 1
  end
  kept[#kept + 1] = place and 1 or 0
end

local first = head(queue, scores, places, now, java_wait_ms)
raise_scores(queue, scores, places, ours, now, allowance_ms, java_wait_ms)
if first and redis.call('exists', lock) == 0 then
  redis.pcall('publish', channel .. ':' .. first, '0')
  if ours[first] then
    kept[ours[first]] = 2
  end
end
return kept
