-- The end of a writer's field, behind its owner.
local WRITER = ':write'
