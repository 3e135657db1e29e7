-- Returns how many permits of a semaphore are available. nil: there is no semaphore. false: the key holds other text. The number is
-- negative after the total was made smaller than the permits in use.
local function available_of(semaphore)
  local text = redis.call('get', semaphore)
  if not text then
    return nil
  end
  return string.find(text, '^%-?%d+$') and tonumber(text) or false
end
