local function remove_keys(keys, first, last)
  for i = first, last do
    redis.call('del', keys .. i)
  end
end
