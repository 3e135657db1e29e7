-- The replies that are no amounts. Each number has one meaning in all scripts, and src/protocol/reply.rs has the same names.
-- NO_KNOWN_END and FREE are what PTTL replies for a key without expiry, and for no key.
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LATE = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY, WANTED = -16, -17
