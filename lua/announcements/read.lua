#!lua flags=allow-oom
--[[
  Tells what the holder of a lock announces. It counts only while that owner holds the lock.

  KEYS[1]  announcement  string: "<owner> <identity> <text>"

  Returns
    nil   there is none
    text  the owner, the identity of its client, and what it announces, with a space between two of them
  Repeating  changes nothing
]]
local announcement = KEYS[1]

return redis.call('get', announcement)
