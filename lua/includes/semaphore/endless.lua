-- The end of a lease that has no end: what Redisson writes for it.
local ENDLESS = 922337203685477
