local renewed, at = {}, 2
for i = 1, #KEYS, 2 do
  local count, is_alive = tonumber(ARGV[at]), false
  for j = at + 1, at + count do
    local holds = redis.call('hget', KEYS[i], ARGV[j])
    if holds ~= false then
      is_alive = true
      for hold = tonumber(holds), 1, -1 do
        redis.call('pexpire', KEYS[i + 1] .. ':' .. ARGV[j] .. ':rwlock_timeout:' .. hold, ARGV[1])
      end
    end
  end
  at = at + count + 1
  if is_alive then
    redis.call('pexpire', KEYS[i], ARGV[1])
  end
  renewed[#renewed + 1] = is_alive and 1 or 0
end
return renewed
