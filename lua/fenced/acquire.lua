#!lua
--[[
  Acquires a free lock for an owner that holds nothing on it, with a token that is greater than all earlier ones. The only
  script of the fenced lock that creates a hold.

  KEYS[1]  lock     hash: owner -> hold count
  KEYS[2]  counter  string: the token of the last grant; no expiry

  ARGV[1]  owner     text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]  lease_ms  milliseconds, > 0

  With  server_time needs_right_to_expire occupied_reply replies

  Returns
    text          granted: the token
    >= 0          held by another owner: milliseconds left of its lease
    NO_KNOWN_END  held by another owner, without expiry
    OTHER_KIND    the key is a read-write lock
    NOT_A_LOCK    the key is a hash that is no lock
    CANNOT_COUNT  the counter is no number, or cannot grow. If this is a copy, the owner perhaps has the hold
  Publishes  nothing
  Repeating  a copy that finds its own hold answers with its token, and adds no hold. A copy that runs after the hold
             was released creates an orphan. The sender releases this orphan until no copy can arrive
]]
local lock, counter = KEYS[1], KEYS[2]
local owner, lease_ms = ARGV[1], ARGV[2]

-- Returns the reply of the script after a command on the counter failed. An error that is not about its value stays an error.
local function failed(reply)
  local is_value = string.find(reply.err, '^WRONGTYPE') or string.find(reply.err, 'not an integer', 1, true)
  return (is_value or string.find(reply.err, 'overflow', 1, true)) and CANNOT_COUNT or reply
end

-- Returns the next token as text, or the reply of the script.
--
-- A counter that was lost or fell behind must not repeat a token: it continues from the server's clock, in microseconds.
local function next_token()
  local _, now_us = server_time()
  local count = redis.pcall('incr', counter)
  if type(count) == 'table' then
    return failed(count)
  end
  if count < now_us then
    local token = string.format('%.0f', now_us)
    redis.call('set', counter, token)
    return token
  end
  -- As text: a Lua number is exact only up to 2^53.
  return redis.call('get', counter)
end

-- Returns the token of the hold as text, or the reply of the script. No other owner increases the counter while the lock is held,
-- but another program can overwrite it.
local function own_token()
  local token = redis.pcall('get', counter)
  if not token then
    return next_token()
  end
  if type(token) == 'table' then
    return failed(token)
  end
  local is_in_range = #token < 19 or (#token == 19 and token <= '9223372036854775807')
  return is_in_range and string.find(token, '^[1-9]%d*$') and token or CANNOT_COUNT
end

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
  needs_right_to_expire(lock, lease_ms)
  -- The token comes before the hold, because nothing is granted if the counter cannot count.
  local token = next_token()
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
