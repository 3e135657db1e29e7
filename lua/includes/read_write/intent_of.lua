-- The end of the key of the intent of a writer that readers kept waiting, behind the tag. The intent lasts for ten turns, and stops new
-- readers during the first turn. Its value is the milliseconds of the other nine turns, a space, and the writer.
local INTENT = ':lockkeeper_intent'

-- Stands for the writer in an intent that a reader's client set on behalf of somebody who waits.
local SOMEBODY = 'somebody'

-- Returns the milliseconds in the value of an intent, as text, and the writer. nil: there is no intent.
local function intent_of(intent)
  -- pcall: a key that was replaced by another type stops nobody.
  local value = redis.pcall('get', intent)
  return string.match(type(value) == 'string' and value or '', '^(%d+) ?(.*)$')
end
