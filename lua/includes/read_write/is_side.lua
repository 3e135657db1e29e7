-- With  is_holder read_write/writer
-- Returns whether a field and its value are those of a reader or a writer.
local function is_side(field, value)
  return is_holder(is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field, value)
end
