#!lua
--[[
  Acquires the first free one of several locks, for an owner that holds none of them, with a token that is greater than all earlier
  ones of the group. The only script of claims that creates a hold.

  KEYS[1]    counter   string: the token of the last grant in the group; no expiry
  KEYS[1+i]  lock      hash: owner -> hold count; one per name, in the order of the list

  ARGV[1]    owner        text: "<client uuid>:<n>", never used for an earlier hold
  ARGV[2]    lease_ms     milliseconds, > 0
  ARGV[3]    valid_until  seconds of the server's time, ten digits: the script does nothing after them

  With  count_up create_hold occupied_reply replies server_time

  Returns
    list          granted: the place of the lock in the list, from 1 on, and the token as text.
                  Or NOT_A_LOCK and the place of a key that holds other data
    nil           other owners hold all of these locks, perhaps as locks of another kind
    CANNOT_COUNT  the counter is no number, or cannot grow
    LATE          valid_until has passed
  Repeating  acquires another one of these locks, or the same one after it was released: an orphan. The sender releases all of
             them until no copy can arrive, except a lock that its owner holds
]]
local counter = KEYS[1]
local owner, lease_ms, valid_until = ARGV[1], ARGV[2], ARGV[3]

local _, now_us, now_s = server_time()
if now_s > valid_until then
  return LATE
end

-- All keys are looked at before a free one is used, so the reply does not depend on the order of those in use. There can be a hundred
-- keys that other owners hold, so each of them costs one look, at one field. An owner has a UUID of 36 characters, a colon and a number.
local free, place
local find = string.find
for i = 2, #KEYS do
  local lock = KEYS[i]
  -- pcall: an error must not end the script, because the reply has to name the key.
  local field = redis.pcall('hrandfield', lock)
  if not field then
    if not free then
      free, place = lock, i - 1
    end
  elseif #field == 0 or not find(field, '^:%d+$', 37) then
    -- An error, another kind of lock, or data of another program.
    if type(field) == 'table' then
      return find(field.err, '^WRONGTYPE') and { NOT_A_LOCK, i - 1 } or field
    end
    if occupied_reply(lock, 0) == NOT_A_LOCK then
      return { NOT_A_LOCK, i - 1 }
    end
  end
end
if not free then
  return nil
end
-- The token comes first, because nothing is granted if the counter cannot count.
local token = count_up(counter, now_us)
if type(token) ~= 'string' then
  return token
end
create_hold(free, lease_ms, owner, '1')
return { place, token }
