-- Returns the key of the intent of a writer that readers kept waiting. The intent lasts for ten turns, and stops new readers
-- during the first turn. Its value is the milliseconds of the other nine turns, a space, and the writer.
local function intent_key(tag)
  return tag .. ':lockkeeper_intent'
end

-- Stands for the writer in an intent that a reader's client set on behalf of somebody who waits.
local SOMEBODY = 'somebody'
