#!lua flags=allow-oom
--[[
  Fails on a server that lacks what the other scripts need.

  ARGV[1]  key  text: a key that should not exist. Not in KEYS: a user without the right to it could not ask

  Returns
    nil   nothing is missing, or this user may not use the key
    text  the error of a PEXPIRE with the option GT
  Publishes  nothing
  Repeating  changes nothing: an expiry of 1 ms is never later than that of an existing key
]]
local key = ARGV[1]

if redis.acl_check_cmd('pexpire', key, '1', 'gt') then
  local reply = redis.pcall('pexpire', key, '1', 'gt')
  if type(reply) == 'table' then
    return reply.err
  end
end
return nil
