-- With  read_write/hold_key read_write/longest
-- Makes the lease of a reader's hold at least this long, and with it that of the lock. Never makes one shorter.
local function keep_hold(lock, tag, owner, ms)
  -- The key of the hold comes before the lock: if a command fails in between, a living reader must not look dead.
  local is_longer = redis.call('pexpire', hold_key(tag, owner, 1), ms, 'gt') == 0
  redis.call('pexpire', lock, is_longer and longest(tag, owner, 1) or ms, 'gt')
end
