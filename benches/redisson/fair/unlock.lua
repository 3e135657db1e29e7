local answered = redis.call('get', KEYS[5])
if answered ~= false then
  return tonumber(answered)
end
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then
    break
  end
  local till = redis.call('zscore', KEYS[3], first)
  if till ~= false and tonumber(till) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0 then
  local next = redis.call('lindex', KEYS[2], 0)
  if next ~= false then
    redis.call(ARGV[5], KEYS[4] .. ':' .. next, ARGV[1])
  end
  redis.call('set', KEYS[5], 1, 'px', ARGV[6])
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[6])
  return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6])
local next = redis.call('lindex', KEYS[2], 0)
if next ~= false then
  redis.call(ARGV[5], KEYS[4] .. ':' .. next, ARGV[1])
end
return 1
