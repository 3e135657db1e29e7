#!lua flags=allow-oom
--[[
  Raises an existing read hold to a given count. Never creates one: an owner that lost its hold has to acquire again.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the keys of the owner's holds
  KEYS[2]  channel  where the waiters of this lock listen. Declared so that the script is refused while the slot moves

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number of the grant that the hold belongs to
  ARGV[3]  want      the target count, >= 2
  ARGV[4]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is

  With  replies tag_of read_write/hold_key read_write/grant_of read_write/longest

  Returns
    nil   granted
    LOST  this owner holds nothing, or a later hold
  Publishes  nothing
  Repeating  changes nothing: the count is a target. A copy that runs after the hold ended answers "lost"
]]
local lock, channel = KEYS[1], KEYS[2]
local owner, grant, want, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local tag, count = tag_of(lock), tonumber(redis.call('hget', lock, owner)) or 0
if grant_of(tag, owner, count) ~= grant then
  return LOST
end
local lasts_ms = longest(tag, owner, count)
if lasts_ms < tonumber(lease_ms) then
  lasts_ms = lease_ms
end
redis.call('set', hold_key(tag, owner, 1), grant, 'px', lasts_ms)
redis.call('pexpire', lock, lasts_ms, 'gt')
if count < tonumber(want) then
  for i = count + 1, tonumber(want) do
    redis.call('set', hold_key(tag, owner, i), grant, 'px', lease_ms)
  end
  redis.call('hset', lock, owner, want)
end
return nil
