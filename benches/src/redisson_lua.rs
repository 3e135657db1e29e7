//! The scripts of Redisson 4.7, written anew: the same commands with the same words, in the same order.
//!
//! Lines with the word "latch" belong to the unlock latch, a key by which an unlock that is sent twice is answered twice in the same way.
//! Redisson has it since 3.24.1.

/// The text of a script without the unlock latch.
pub fn without_latch(script: &str) -> String {
    script.lines().filter(|line| !line.contains("latch")).map(|line| format!("{line}\n")).collect()
}

/// `KEYS`: name. `ARGV`: lease, owner.
pub const LOCK: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
";

/// `KEYS`: name, channel, latch. `ARGV`: message, lease, owner, publish, time of the latch.
pub const UNLOCK: &str = "\
local latch = redis.call('get', KEYS[3])
if latch ~= false then return tonumber(latch) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5]) -- latch
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5]) -- latch
return 1
";

/// `KEYS`: name, token. `ARGV`: lease, owner.
pub const FENCED_LOCK: &str = "\
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  local token = redis.call('incr', KEYS[2])
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return { -1, token }
end
return { redis.call('pttl', KEYS[1]), -1 }
";

/// `KEYS`: name, queue, scores. `ARGV`: lease, owner, wait, now. Leaves out what only a waiter needs.
pub const FAIR_LOCK: &str = "\
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if head == false then
    break
  end
  local score = redis.call('zscore', KEYS[3], head)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0
  and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  local waiters = redis.call('zrange', KEYS[3], 0, -1)
  for i = 1, #waiters do
    redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), waiters[i])
  end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
";

/// `KEYS`: name, queue, scores, channel, latch. `ARGV`: message, lease, owner, now, publish, time of the latch.
pub const FAIR_UNLOCK: &str = "\
local latch = redis.call('get', KEYS[5])
if latch ~= false then return tonumber(latch) end
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if head == false then
    break
  end
  local score = redis.call('zscore', KEYS[3], head)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0 then
  local head = redis.call('lindex', KEYS[2], 0)
  if head ~= false then
    redis.call(ARGV[5], KEYS[4] .. ':' .. head, ARGV[1])
  end
  redis.call('set', KEYS[5], 1, 'px', ARGV[6]) -- latch
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[6]) -- latch
  return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6]) -- latch
local head = redis.call('lindex', KEYS[2], 0)
if head ~= false then
  redis.call(ARGV[5], KEYS[4] .. ':' .. head, ARGV[1])
end
return 1
";

/// `KEYS`: name, prefix of the hold's keys. `ARGV`: lease, owner, writer.
pub const READ_LOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1 then
  local count = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  local key = KEYS[2] .. ':' .. count
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  local left = redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], math.max(left, ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])
";

/// `KEYS`: name, channel, prefix of the hold's keys, prefix of the keys of all holds, latch. `ARGV`: message, owner, publish, time of
/// the latch.
pub const READ_UNLOCK: &str = "\
local latch = redis.call('get', KEYS[5])
if latch ~= false then return tonumber(latch) end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  redis.call('set', KEYS[5], 1, 'px', ARGV[4]) -- latch
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count == 0 then
  redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', KEYS[3] .. ':' .. (count + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    local holds = tonumber(redis.call('hget', KEYS[1], field))
    if type(holds) == 'number' then
      for i = holds, 1, -1 do
        local left = redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i)
        longest = math.max(left, longest)
      end
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    redis.call('set', KEYS[5], 0, 'px', ARGV[4]) -- latch
    return 0
  end
  if mode == 'write' then
    redis.call('set', KEYS[5], 0, 'px', ARGV[4]) -- latch
    return 0
  end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[4]) -- latch
return 1
";

/// `KEYS`: name. `ARGV`: lease, writer.
pub const WRITE_LOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
";

/// `KEYS`: name, channel, latch. `ARGV`: message, lease, writer, publish, time of the latch.
pub const WRITE_UNLOCK: &str = "\
local latch = redis.call('get', KEYS[3])
if latch ~= false then return tonumber(latch) end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  redis.call('set', KEYS[3], 1, 'px', ARGV[5]) -- latch
  return nil
end
if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5]) -- latch
  return 0
end
redis.call('hdel', KEYS[1], ARGV[3])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
redis.call('set', KEYS[3], 1, 'px', ARGV[5]) -- latch
return 1
";

/// `KEYS`: name, permits, channel. `ARGV`: count, end of the lease, now, end of an endless lease, publish, id.
pub const PERMIT_ACQUIRE: &str = "\
local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
if #expired > 0 then
  redis.call('zrem', KEYS[2], unpack(expired))
  local available = redis.call('incrby', KEYS[1], #expired)
  if tonumber(available) > 0 then
    redis.call(ARGV[5], KEYS[3], available)
  end
end
local available = redis.call('get', KEYS[1])
if available ~= false and tonumber(available) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  for i = 6, #ARGV do
    redis.call('zadd', KEYS[2], ARGV[2], ARGV[i])
  end
  local left = redis.call('pttl', KEYS[1])
  if left > 0 then
    redis.call('pexpire', KEYS[2], left)
  end
  return 'OK'
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
return first[1] and first[2] ~= ARGV[4] and ':' .. first[2] or nil
";

/// `KEYS`: name, channel, permits. `ARGV`: id, count, now, publish. It has no latch.
pub const PERMIT_RELEASE: &str = "\
local ends = redis.call('zscore', KEYS[3], ARGV[1])
if tonumber(redis.call('zrem', KEYS[3], ARGV[1])) ~= 1 then
  return 0
end
local available = redis.call('incrby', KEYS[1], ARGV[2])
redis.call(ARGV[4], KEYS[2], available)
if tonumber(ends) <= tonumber(ARGV[3]) then
  return 0
end
return 1
";
