#!lua
--[[
  Records since when a client holds locks, or waits for them, for those who look.

  KEYS[i]     records    hash: owner, without the id of the client -> "<since when, ms> <what>". The same one for each row

  ARGV[1]     expiry_ms  milliseconds after which the hash expires
  ARGV[3i-1]  owner      text: the owner, without the id of the client
  ARGV[3i]    age_ms     milliseconds for which it holds or waits
  ARGV[3i+1]  what       text: the key of the lock. Of a wait: what the same `Owner` holds, and the key

  With  server_time

  Returns
    nil
  Publishes  nothing
  Repeating  changes only the expiry. A copy that runs after a hold ended leaves its record until then: the owner is not used again
]]
local expiry_ms = ARGV[1]

local now = server_time()
for i, records in ipairs(KEYS) do
  local owner, age_ms, what = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), ARGV[3 * i + 1]
  -- PEXPIRE comes before HSET: a user without the right to it fails here, and leaves no hash without an expiry.
  redis.call('pexpire', records, expiry_ms)
  redis.call('hset', records, owner, string.format('%.0f %s', now - age_ms, what))
  redis.call('pexpire', records, expiry_ms)
end
