#!lua flags=allow-oom
--[[
  Fails on a server that lacks what the other scripts need.

  KEYS[1]  key    a key that does not exist. Without it, as for a user without the right to it, only shows that scripts run

  ARGV[1]  other  text: another such key in the same slot. Not in KEYS: some services refuse it then. Empty: is not looked at

  Returns
    nil   nothing is missing, or this user may not use the keys
    text  the error of a PEXPIRE with the option GT
  Repeating  changes nothing: an expiry of 1 ms is never later than that of an existing key
]]
local key = KEYS[1]
local other = ARGV[1]

if key and redis.acl_check_cmd('pexpire', key, '1', 'gt') then
  local reply = redis.pcall('pexpire', key, '1', 'gt')
  if type(reply) == 'table' then
    return reply.err
  end
end
if key and other ~= '' and redis.acl_check_cmd('exists', other) then
  redis.call('exists', other)
end
return nil
