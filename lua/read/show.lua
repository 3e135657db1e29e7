#!lua flags=allow-oom
--[[
  Shows the present hold count of a reader after a re-entry or an inner release, and makes the lease longer. Never creates a hold: an
  owner that lost its hold has to acquire again.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the key of the owner's hold
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number of the grant that the hold belongs to
  ARGV[3]  count     the hold count, >= 1. Nothing relies on it
  ARGV[4]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is

  With  replies tag_of read_write/hold_key read_write/grant_of read_write/keep_hold

  Returns
    nil   shown
    LOST  this owner holds nothing, or a later hold
  Repeating  shows the same count again. A copy that runs late can show an earlier count. After the hold ended it answers "lost"
]]
local lock, channel = KEYS[1], KEYS[2]
local owner, grant, count, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local tag = tag_of(lock)
if redis.call('hexists', lock, owner) == 0 or grant_of(hold_key(tag, owner, 1)) ~= grant then
  return LOST
end
keep_hold(lock, tag, owner, lease_ms)
redis.call('hset', lock, owner, count)
return nil
