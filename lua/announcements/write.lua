#!lua flags=allow-oom
--[[
  Writes what the holder of a lock announces. It expires with the present lease of the lock.

  KEYS[1]  lock          hash: owner -> hold count
  KEYS[2]  announcement  string: "<owner> <identity> <text>"

  ARGV[1]  owner  text: the holder
  ARGV[2]  text   the identity of its client, a space, and what it announces; nothing after the space: only that it holds the lock

  With  replies

  Returns
    nil   written
    LOST  this owner holds nothing: nothing was written
  Publishes  "0" on the channel with the name of announcement, if the announcement changed
  Repeating  writes the same again. A copy that runs after the hold ended writes nothing
]]
local lock, announcement = KEYS[1], KEYS[2]
local owner, text = ARGV[1], ARGV[2]

if redis.call('hexists', lock, owner) == 0 then
  return LOST
end
local said = owner .. ' ' .. text
local before = redis.call('get', announcement)
-- A lock without an expiry, which only another program can make, gets one with its next renewal.
redis.call('set', announcement, said, 'px', math.max(redis.call('pttl', lock), 1000))
if said ~= before then
  -- pcall: listeners also ask by themselves, so a refused message must not make the script fail.
  redis.pcall('publish', announcement, '0')
end
