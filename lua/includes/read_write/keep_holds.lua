-- With  read_write/hold_key read_write/longest
-- Makes the leases of a reader's holds at least this long, and with them that of the lock. Never makes one shorter.
local function keep_holds(lock, tag, owner, count, ms)
  -- The keys of the holds come before the lock: if a command fails in between, living readers must not look dead.
  local is_longer = false
  for hold = 1, count do
    is_longer = redis.call('pexpire', hold_key(tag, owner, hold), ms, 'gt') == 0 or is_longer
  end
  redis.call('pexpire', lock, is_longer and longest(tag, owner, count) or ms, 'gt')
end
