-- The end of a writer's field, behind its owner.
local WRITER = ':write'

local function is_writer(field)
  return string.sub(field, -#WRITER) == WRITER
end
