-- With  is_holder replies read_write/longest
-- Returns the milliseconds left of the lease of a living reader other than the given one. nil: there is none. NOT_A_LOCK: a
-- field is not a holder. Dead readers found on the way are removed, so each dead reader costs time only once.
local function reader_ms(lock, tag, one)
  repeat
    local has_dead = false
    -- Three fields, because one can be the mode and one the given reader.
    local found = redis.call('hrandfield', lock, '3', 'withvalues')
    for i = 1, #found, 2 do
      local reader, count = found[i], found[i + 1]
      if reader ~= 'mode' and reader ~= one then
        if not is_holder(reader, count) then
          return NOT_A_LOCK
        end
        local lasts_ms = longest(tag, reader, tonumber(count))
        if lasts_ms ~= -2 then
          return lasts_ms
        end
        redis.call('hdel', lock, reader)
        has_dead = true
      end
    end
  until not has_dead
  return nil
end
