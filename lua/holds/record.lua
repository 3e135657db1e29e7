#!lua flags=allow-oom
--[[
  Records since when a client holds locks, for those who look.

  KEYS[i]       holds      hash: owner, without the id of the client -> "<since when, ms> <lock>". The same one for each hold

  ARGV[1]       expiry_ms  milliseconds after which the hash expires
  ARGV[3i-1]    owner      text: the owner of the hold, without the id of the client
  ARGV[3i]      age_ms     milliseconds for which the lock is held
  ARGV[3i+1]    lock       text: the key of the lock

  With  server_time

  Returns
    nil
  Publishes  nothing
  Repeating  changes only the expiry. A copy that runs after a hold ended leaves its record until then: the owner is not used again
]]
local expiry_ms = ARGV[1]

local now = server_time()
for i, holds in ipairs(KEYS) do
  local owner, age_ms, lock = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), ARGV[3 * i + 1]
  redis.call('hset', holds, owner, string.format('%.0f %s', now - age_ms, lock))
  redis.call('pexpire', holds, expiry_ms)
end
