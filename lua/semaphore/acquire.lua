#!lua
--[[
  Acquires permits of a semaphore: all that the call names, or none. If no others are left, removes permits whose leases have ended.
  The only script that creates a permit. If no permit is available and none is in use, the set of permits was lost, and the total counts anew.

  KEYS[1]  semaphore  string: how many permits are available
  KEYS[2]  permits    sorted set: id of a permit -> end of its lease, ms of the server's time or Java's

  ARGV[1]  ids          bytes: the ids of the permits, 16 bytes each, never used before
  ARGV[2]  total        how many permits the semaphore has, if its key does not exist or the set of permits was lost
  ARGV[3]  lease_ms     milliseconds, > 0
  ARGV[4]  channel      where the waiters of this semaphore listen. Not in KEYS: then no key with its name is needed
  ARGV[5]  valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  replies server_time semaphore/available_of semaphore/permit_of semaphore/expired_among semaphore/endless
  With  semaphore/clock_slack

  Returns
    list          granted: the number of permits that are still available, and the total. Or TOO_MANY, and the total
    >= 0          refused: milliseconds until the next lease ends
    NO_KNOWN_END  refused, and no lease ends: only permits of Java without a lease are in use
    NOT_A_LOCK    the key holds text that is no number
    TOO_MANY      the call wants more permits than the total
    LATE          valid_until has passed
  Publishes  the number of available permits on channel, if permits were removed and the number is > 0
  Repeating  a copy counts the permits a second time. A copy that runs after they were released creates orphans. The sender releases
             these orphans until no copy can arrive
]]
-- At most this many permits whose leases ended are removed at once, or as many as the call wants if that is more.
local MANY = 100

local semaphore, permits = KEYS[1], KEYS[2]
local ids, total, lease_ms, channel, valid_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local now_ms, _, now_s = server_time()
if now_s > valid_until then
  return LATE
end

local available = available_of(semaphore)
if available == false then
  return NOT_A_LOCK
end
local wanted, is_new = #ids / 16, available == nil
-- By how much the number is too small after the set of permits was lost.
local lost = 0
-- Otherwise more permits are available than the call wants. The next call that needs them removes those whose leases
-- ended.
if is_new or available <= wanted then
  local first = redis.call('zrange', permits, '0', '0', 'withscores')
  local over_ms = now_ms - CLOCK_SLACK_MS
  if expired_among(first, over_ms) == 1 then
    local most = math.max(MANY, wanted)
    local oldest = redis.call('zrange', permits, '0', most, 'withscores')
    local expired = math.min(expired_among(oldest, over_ms), most)
    if not is_new then
      -- Makes the script fail before ZREM if this user may not change the number. If INCRBY failed after ZREM, permits would
      -- be missing until the next resize.
      redis.call('incrby', semaphore, '0')
    end
    for i = 1, expired do
      redis.call('zrem', permits, oldest[2 * i - 1])
    end
    first = { oldest[2 * expired + 1], oldest[2 * expired + 2] }
    if not is_new then
      available = redis.call('incrby', semaphore, expired)
      if available > 0 then
        -- pcall: the permits are available already, so a refused message must not make the script fail.
        redis.pcall('publish', channel, available)
      end
    end
  end
  if is_new then
    available = total - redis.call('zcard', permits)
  elseif available <= 0 and #first == 0 then
    -- The set of permits was deleted by hand, or evicted. Those who held a permit learn this at their next renewal.
    lost, available = total - available, tonumber(total)
  end
  if available < wanted then
    local sum = available + redis.call('zcard', permits)
    if wanted > sum then
      return { TOO_MANY, sum }
    end
    local first_ms = first[2] and tonumber(first[2])
    return first_ms and first_ms < ENDLESS and math.max(first_ms + CLOCK_SLACK_MS - now_ms, 0) or NO_KNOWN_END
  end
end

-- Without a fraction: Java parses the ends as integers.
local ends_ms = now_ms + lease_ms + CLOCK_SLACK_MS
for i = 1, wanted do
  redis.call('zadd', permits, ends_ms, wanted == 1 and ids or permit_of(ids, i))
end
available = available - wanted
local set
if is_new then
  set = redis.pcall('set', semaphore, available)
else
  set = redis.pcall('incrby', semaphore, wanted == 1 and lost == 0 and '-1' or lost - wanted)
end
if type(set) == 'table' and set.err then
  -- This user may not change the number. If the permits stayed in the set, the ends of their leases would later add
  -- permits that were never subtracted.
  for i = 1, wanted do
    redis.call('zrem', permits, permit_of(ids, i))
  end
  return set
end
local in_use = redis.call('zcard', permits)
if in_use == wanted then
  -- These permits are a new set. If another program gave the semaphore an expiry, the set gets the same one. pcall:
  -- the permits are acquired already, so a refused command must not make the script fail.
  local left_ms = redis.pcall('pttl', semaphore)
  if type(left_ms) == 'number' and left_ms > 0 then
    redis.pcall('pexpire', permits, left_ms)
  end
end
return { math.max(available, 0), available + in_use }
