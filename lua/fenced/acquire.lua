#!lua
--[[
  Acquires a free lock for an owner that holds nothing on it, with a token that is greater than all earlier ones. The only
  script of the fenced lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  counter  string: the token of the last grant; no expiry

  ARGV[1]  owner        text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms     milliseconds, > 0
  ARGV[3]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  count_up needs_right_to_expire occupied_reply replies server_time

  Returns
    text          granted: the token
    >= 0          held by another owner: milliseconds left of its lease
    NO_KNOWN_END  held by another owner, without expiry
    OTHER_KIND    the key is a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    CANNOT_COUNT  the counter is no number, or cannot grow. If this is a copy, the owner perhaps has the hold
    LATE          valid_until has passed
  Publishes  nothing
  Repeating  a copy that finds its own hold answers with its token, and adds no hold. A copy that runs after the hold
             was released creates an orphan. The sender releases this orphan until no copy can arrive
]]
local lock, counter = KEYS[1], KEYS[2]
local owner, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3]

local _, now_us, now_s = server_time()
if now_s > valid_until then
  return LATE
end

-- Returns the token of the hold as text, or the reply of the script. No other owner increases the counter while the lock is held,
-- but another program can overwrite it.
local function own_token()
  local token = redis.pcall('get', counter)
  if not token then
    return count_up(counter, now_us)
  end
  if type(token) == 'table' then
    return uncountable(token)
  end
  local is_in_range = #token < 19 or (#token == 19 and token <= '9223372036854775807')
  return is_in_range and string.find(token, '^[1-9]%d*$') and token or CANNOT_COUNT
end

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
  needs_right_to_expire(lock, lease_ms)
  -- The token comes before the hold, because nothing is granted if the counter cannot count.
  local token = count_up(counter, now_us)
  if type(token) ~= 'string' then
    return token
  end
  redis.call('hset', lock, owner, '1')
  redis.call('pexpire', lock, lease_ms)
  return token
end
if redis.call('hexists', lock, owner) == 1 then
  if left_ms < tonumber(lease_ms) then
    redis.call('pexpire', lock, lease_ms)
  end
  return own_token()
end
return occupied_reply(lock, left_ms)
