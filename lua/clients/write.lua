#!lua flags=allow-oom
--[[
  Writes what a client holds and waits for, for those who look.

  KEYS[1]  client     string: the text

  ARGV[1]  expiry_ms  milliseconds after which the key expires
  ARGV[2]  text       text: JSON; empty: the key is removed

  Returns
    nil
  Repeating  does the same again. A copy that runs late brings an earlier text back, until the client writes the next one
]]
local client = KEYS[1]
local expiry_ms, text = ARGV[1], ARGV[2]

if text == '' then
  redis.call('del', client)
else
  redis.call('set', client, text, 'px', expiry_ms)
end
