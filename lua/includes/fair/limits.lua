-- When a Java client is granted the lock, Java lowers all scores. So the scores of our waiters are at least this much later
-- than now.
local SLACK_MS = 60000

-- The longest wait of a Java client for which the order is kept: Redisson's default of `fairLockWaitTimeout`.
local JAVA_WAIT_MS = 300000

-- One script removes or puts back at most CHUNKS times CHUNK waiters, so that it does not block the server.
local CHUNK, CHUNKS = 100, 20
