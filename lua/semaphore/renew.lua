#!lua flags=allow-oom
--[[
  Renews the leases of the permits of many holds in one command.

  KEYS[i]    permits   sorted set: id of a permit -> end of its lease; one per hold

  ARGV[1]    lease_ms  milliseconds: each lease becomes at least this long, never shorter than it is; 0: no lease changes
  ARGV[1+i]  ids       bytes: the ids of the hold's permits, 16 bytes each

  With  lost_or_error replies server_time semaphore/clock_slack semaphore/permit_of

  Returns
    list  for each hold:
      RENEWED
      LOST  a permit of the hold is not there. The leases of its other permits do not change
      text  an error: nobody knows whether the permits are there. In a cluster, the server lacks the semaphore's slot, or a part of it
  Repeating  changes only the leases. A copy that runs after a permit was released does not create it
]]
local lease_ms = tonumber(ARGV[1])

local ends_ms, renewed = server_time() + lease_ms + CLOCK_SLACK_MS, {}
for i, permits in ipairs(KEYS) do
  local ids = ARGV[1 + i]
  local earlier = {}
  renewed[i] = RENEWED
  for number = 1, #ids / 16 do
    local id = permit_of(ids, number)
    -- pcall: if a key was replaced by another type or is under way to another server, the other holds must still be renewed.
    local before_ms = redis.pcall('zscore', permits, id)
    if type(before_ms) ~= 'string' then
      renewed[i] = lost_or_error(before_ms)
    elseif tonumber(before_ms) < ends_ms then
      earlier[#earlier + 1] = id
    end
  end
  if renewed[i] == RENEWED and lease_ms > 0 then
    for _, id in ipairs(earlier) do
      redis.call('zadd', permits, 'xx', string.format('%.0f', ends_ms), id)
    end
    -- A server that tells a client of changes forgets the key when the client writes it, and knows it again after a read.
    redis.call('zscore', permits, permit_of(ids, 1))
  end
end
return renewed
