-- Returns how many permits of a semaphore are available. The number is negative after the total was made smaller than
-- the permits in use. nil: there is no semaphore. false: the key holds other text, or a number that INCRBY refuses,
-- such as 007, or one that is no number of permits of any client.
local function available_of(semaphore)
  local text = redis.call('get', semaphore)
  if not text then
    return nil
  end
  local number = (text == '0' or string.find(text, '^%-?[1-9]%d*$')) and tonumber(text)
  return number and math.abs(number) <= 4294967295 and number or false
end
