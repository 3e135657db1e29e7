-- Returns the reply of an acquire that has added this many permits.
local function granted(semaphore, permits, available, added)
  local in_use = redis.call('zcard', permits)
  if in_use == added then
    -- These permits are a new set. If another program gave the semaphore an expiry, the set gets the same one. pcall:
    -- the permits are acquired already, so a refused command must not make the script fail.
    local left_ms = redis.pcall('pttl', semaphore)
    if type(left_ms) == 'number' and left_ms > 0 then
      redis.pcall('pexpire', permits, left_ms)
    end
  end
  return { math.max(available, 0), available + in_use }
end
