-- Milliseconds for which Java's clocks can be ahead of the server's.
local CLOCK_SLACK_MS = 500
