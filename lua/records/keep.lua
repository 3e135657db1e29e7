#!lua flags=allow-oom
--[[
  Sets when the records of a client expire.

  KEYS[1]  records    hash: owner, without the id of the client -> "<since when, ms> <what>"

  ARGV[1]  expiry_ms  milliseconds after which the hash expires; 0: it is removed now

  Returns
    1  set
    0  there are no records
  Publishes  nothing
  Repeating  does the same again. A copy that runs late makes the expiry at most as late as a later one did
]]
local records = KEYS[1]
local expiry_ms = ARGV[1]

return redis.call('pexpire', records, expiry_ms)
