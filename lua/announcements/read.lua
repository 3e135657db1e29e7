#!lua flags=allow-oom
--[[
  Tells what the holder of a lock announces. It counts only while that owner holds the lock.

  KEYS[1]  announcement  string: "<owner> <text>"

  Returns
    nil   there is none
    text  the owner, a space, and what it announces
  Publishes  nothing
  Repeating  changes nothing
]]
local announcement = KEYS[1]

return redis.call('get', announcement)
