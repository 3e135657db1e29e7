#!lua
--[[
  Acquires a free lock for an owner that holds nothing on it, with a token that is greater than all earlier ones. The only
  script of the fenced lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  counter  string: the token of the last grant; no expiry

  ARGV[1]  owner        text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms     milliseconds, > 0
  ARGV[3]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  count_up create_hold occupied_reply replies server_time

  Returns
    text          granted: the token
    >= 0          held by another owner: milliseconds left of its lease
    NO_KNOWN_END  held by another owner, without expiry
    OTHER_KIND    the key is a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    CANNOT_COUNT  the counter is no number, or cannot grow
    LATE          valid_until has passed
  Repeating  as rlock/acquire
]]
local lock, counter = KEYS[1], KEYS[2]
local owner, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3]

local _, now_us, now_s = server_time()
if now_s > valid_until then
  return LATE
end

local left_ms = redis.call('pttl', lock)
if left_ms ~= -2 then
  return occupied_reply(lock, left_ms)
end
-- The token comes before the hold, because nothing is granted if the counter cannot count.
local token = count_up(counter, now_us)
if type(token) == 'string' then
  create_hold(lock, lease_ms, owner, '1')
end
return token
