#!lua
--[[
  Acquires a free lock for an owner that holds nothing on it. The only script of the RLock that creates a hold.

  KEYS[1]  lock      hash: owner -> hold count

  ARGV[1]  owner        text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms     milliseconds, > 0
  ARGV[3]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  create_hold occupied_reply replies

  Returns
    nil           granted
    >= 0          held by another owner: milliseconds left of its lease
    NO_KNOWN_END  held by another owner, without expiry
    OTHER_KIND    the key is a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    LATE          valid_until has passed
  Repeating  finds the hold of the first copy, as that of another owner. A copy that runs after the hold was released
             creates an orphan. The sender releases this orphan until no copy can arrive
]]
local lock = KEYS[1]
local owner, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3]

if redis.call('time')[1] > valid_until then
  return LATE
end

local left_ms = redis.call('pttl', lock)
if left_ms ~= -2 then
  return occupied_reply(lock, left_ms)
end
create_hold(lock, lease_ms, owner, '1')
return nil
