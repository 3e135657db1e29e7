#!lua flags=allow-oom
--[[
  Returns what a client wrote for those who look.

  KEYS[1]  client  string: the text

  Returns
    list  the text, and the milliseconds until it expires
    nil   the client tells nothing
  Repeating  changes nothing
]]
local client = KEYS[1]

local text = redis.call('get', client)
return text and { text, redis.call('pttl', client) }
