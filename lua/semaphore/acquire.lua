#!lua
--[[
  Acquires permits of a semaphore: all that the call names, or none. If no others are left, removes permits whose leases have ended.
  The only script that creates a permit. If no permit is available and none is in use, the set of permits was lost, and the total counts anew.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease, ms of the server's time or Java's

  ARGV[1]  ids          bytes: the ids of the permits, 16 bytes each, never used before
  ARGV[2]  total        how many permits the semaphore has, if its key does not exist or the set of permits was lost
  ARGV[3]  lease_ms     milliseconds, > 0
  ARGV[4]  slack_ms     milliseconds for which Java's clocks can be ahead of the server's
  ARGV[5]  channel      where the waiters of this semaphore listen. Not in KEYS: then no key with its name is needed
  ARGV[6]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  replies server_time semaphore/available_of semaphore/permit_of semaphore/expired_among semaphore/endless semaphore/granted

  Returns
    list          granted: the number of permits that are still available, and the total. Or TOO_MANY, and the total
    >= 0          refused: milliseconds until the next lease ends
    NO_KNOWN_END  refused, and no lease ends: only permits of Java without a lease are in use
    NOT_A_LOCK    the key holds text that is no number
    TOO_MANY      the call wants more permits than the total
    LATE          valid_until has passed
  Publishes  the number of available permits on channel, if permits were removed and the number is > 0
  Repeating  a copy that finds its own permits answers "granted". If it finds only some of them, it acquires the others, or releases
             all. A copy that runs after the permits were released creates orphans. The sender releases these orphans until no copy
             can arrive
]]
-- At most this many permits whose leases ended are removed at once, or as many as the call wants if that is more.
local MANY = 100

local semaphore, permits = KEYS[1], KEYS[2]
local ids, total, lease_ms, slack_ms, channel, valid_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local now_ms, _, now_s = server_time()
if now_s > valid_until then
  return LATE
end

local available = available_of(semaphore)
if available == false then
  return NOT_A_LOCK
end
local wanted = #ids / 16
-- Without a fraction: Java parses the ends as integers.
local ends_ms = now_ms + lease_ms + slack_ms
-- The usual case: the call wants one permit, and at least one more is available.
if wanted == 1 and available and available > 1 and redis.call('zadd', permits, 'nx', ends_ms, ids) == 1 then
  local left = redis.pcall('incrby', semaphore, '-1')
  if type(left) == 'table' then
    -- This user may not change the number. If the permit stayed in the set, the end of its lease would later add a
    -- permit that was never subtracted.
    redis.call('zrem', permits, ids)
    return left
  end
  return granted(semaphore, permits, left, 1)
end
total = tonumber(total)
local is_new = available == nil

-- Makes the script fail before ZREM if this user may not change the number. If INCRBY failed after ZREM, permits would
-- be missing until the next resize.
local function needs_right_to_add()
  if not is_new then
    redis.call('incrby', semaphore, '0')
  end
end

-- Adds permits that came back, and wakes those who wait for them.
local function add(count)
  if not is_new then
    available = redis.call('incrby', semaphore, count)
    if available > 0 then
      -- pcall: the permits are available already, so a refused message must not make the script fail.
      redis.pcall('publish', channel, available)
    end
  end
end

-- By how much the number is too small after the set of permits was lost.
local lost = 0
-- Otherwise more permits are available than the call wants. The next call that needs them removes those whose leases
-- ended.
if is_new or available <= wanted then
  local first = redis.call('zrange', permits, '0', '0', 'withscores')
  if expired_among(first, now_ms - slack_ms) == 1 then
    local oldest = redis.call('zrange', permits, '0', math.max(MANY, wanted), 'withscores')
    local expired = math.min(expired_among(oldest, now_ms - slack_ms), math.max(MANY, wanted))
    needs_right_to_add()
    for i = 1, expired do
      redis.call('zrem', permits, oldest[2 * i - 1])
    end
    first = { oldest[2 * expired + 1], oldest[2 * expired + 2] }
    add(expired)
  end
  if is_new then
    available = total - redis.call('zcard', permits)
  elseif available <= 0 and #first == 0 then
    -- The set of permits was deleted by hand, or evicted. Those who held a permit learn this at their next renewal.
    lost, available = total - available, total
  end
  if available < wanted then
    local found = {}
    for i = 1, wanted do
      local id = permit_of(ids, i)
      if redis.call('zscore', permits, id) then
        found[#found + 1] = id
      end
    end
    -- After the total was made smaller, the number is negative, and a copy of a granted call still finds its permits.
    if wanted - #found > math.max(available, 0) then
      local sum = available + redis.call('zcard', permits)
      -- Java can have removed some permits of an earlier copy, because its clock is ahead.
      if #found > 0 then
        needs_right_to_add()
        for _, id in ipairs(found) do
          redis.call('zrem', permits, id)
        end
        add(#found)
      end
      if wanted > sum then
        return { TOO_MANY, sum }
      end
      local first_ms = first[2] and tonumber(first[2])
      return first_ms and first_ms < ENDLESS and math.max(first_ms + slack_ms - now_ms, 0) or NO_KNOWN_END
    end
  end
end

local added = {}
for i = 1, wanted do
  local id = permit_of(ids, i)
  if redis.call('zadd', permits, 'nx', ends_ms, id) == 1 then
    added[#added + 1] = id
  elseif tonumber(redis.call('zscore', permits, id)) < ends_ms then
    -- This call is a copy of one that was granted, so it only makes the lease longer.
    redis.call('zadd', permits, 'xx', ends_ms, id)
  end
end
if #added > 0 then
  available = available - #added
  local set
  if is_new then
    set = redis.pcall('set', semaphore, available)
  else
    set = redis.pcall('incrby', semaphore, lost - #added)
  end
  if type(set) == 'table' and set.err then
    -- This user may not change the number. If the permits stayed in the set, the ends of their leases would later add
    -- permits that were never subtracted.
    for _, id in ipairs(added) do
      redis.call('zrem', permits, id)
    end
    return set
  end
end
return granted(semaphore, permits, available, #added)
