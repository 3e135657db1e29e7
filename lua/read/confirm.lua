#!lua flags=allow-oom
--[[
  Renews a read hold that its client keeps although perhaps nobody reads, and says whether somebody waits for the lock. If nobody
  stops new readers for him, stops them: a writer of Redisson cannot do so.

  KEYS[1]  lock     hash: "mode" -> "read" or "write", owner -> hold count; and the key of the owner's hold, and the
                    intent of a writer
  KEYS[2]  channel  where the waiters of this lock listen

  ARGV[1]  owner     text: the owner of the hold
  ARGV[2]  grant     number of the grant that the hold belongs to
  ARGV[3]  lease_ms  milliseconds: the lease becomes at least this long, never shorter than it is
  ARGV[4]  stop_ms   milliseconds for which new readers are stopped if somebody waits
  ARGV[5]  calm_ms   milliseconds after that, in which no client stops them for somebody else
  ARGV[6]  is_gap    1: new readers are stopped also if nobody is seen to wait; 0: not

  With  replies tag_of read_write/intent_of read_write/hold_key read_write/grant_of read_write/keep_hold

  Returns
    RENEWED  nobody waits
    WANTED   renewed, and somebody waits, or nobody knows
    LOST     this owner holds nothing, or a later hold
  Repeating  changes only the lease, and perhaps stops readers once more. A copy that runs after the hold ended changes nothing
]]
local lock, channel = KEYS[1], KEYS[2]
local owner, grant, lease_ms, stop_ms, calm_ms, is_gap = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local tag = tag_of(lock)
if redis.call('hexists', lock, owner) == 0 or grant_of(hold_key(tag, owner, 1)) ~= grant then
  return LOST
end
keep_hold(lock, tag, owner, lease_ms)

-- pcall: a user without the right to ask gets an error, which counts as somebody who waits.
local listeners = redis.pcall('pubsub', 'numsub', channel)
local is_wanted = listeners.err ~= nil or listeners[2] > 0
local intent = tag .. INTENT
local left_ms = redis.call('pttl', intent)
if left_ms == -2 then
  if is_gap == '1' or is_wanted and not listeners.err then
    redis.call('set', intent, calm_ms .. ' ' .. SOMEBODY, 'px', stop_ms + calm_ms)
  end
elseif not is_wanted then
  local calm = intent_of(intent)
  is_wanted = calm and left_ms > tonumber(calm)
end
return (is_wanted or is_gap == '1') and WANTED or RENEWED
