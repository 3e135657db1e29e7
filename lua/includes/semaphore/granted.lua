-- Returns the reply of an acquire that has added so many permits.
local function granted(semaphore, permits, available, added)
  local in_use = redis.call('zcard', permits)
  if in_use == added then
    -- Somebody can have given the semaphore an expiry. pcall: the permits are acquired already.
    local left_ms = redis.pcall('pttl', semaphore)
    if type(left_ms) == 'number' and left_ms > 0 then
      redis.pcall('pexpire', permits, left_ms)
    end
  end
  return { math.max(available, 0), available + in_use }
end
