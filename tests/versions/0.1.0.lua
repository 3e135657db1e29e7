=== fair/acquire.lua
#!lua
local function create_hold(lock, lease_ms, ...)
redis.call('pexpire', lock, lease_ms)
redis.call('hset', lock, ...)
redis.call('pexpire', lock, lease_ms)
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function occupied_reply(lock, left_ms)
local fields = redis.call('hrandfield', lock, '2', 'withvalues')
if #fields == 2 and is_holder(fields[1], fields[2]) then
return left_ms
end
local mode = redis.call('hget', lock, 'mode')
return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local SLACK_MS = 60000

local CHUNK, CHUNKS = 100, 20

local function alive_ms(allowance_ms)
return allowance_ms + math.floor(allowance_ms / 3)
end

local function new_record(now, allowance_ms, java_before)
return string.format('%.0f %.0f', now + alive_ms(allowance_ms), java_before)
end

local function java_before(record)
return tonumber(string.match(record, ' (%d+)$'))
end
local function alive_until(record)
return tonumber(string.match(record, '^%d+'))
end
local function forget(scores, records, tickets, waiters)
redis.call('zrem', scores, unpack(waiters))
redis.call('hdel', records, unpack(waiters))
redis.call('zrem', tickets, unpack(waiters))
end
local function leave_to_java(queue, scores, tickets)
if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
redis.call('persist', queue)
redis.call('persist', scores)
end
end
local function remove_dead(queue, scores, records, tickets, now)
local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
local dead = {}
for i, record in ipairs(redis.call('hmget', records, unpack(waiters))) do
if not record or alive_until(record) > now then
break
end
dead[i] = waiters[i]
end
if #dead > 0 then
redis.call('lpop', queue, #dead)
forget(scores, records, tickets, dead)
end
end
local function put_back(queue, scores, tickets, first, now)
local most = first and redis.call('zscore', tickets, first)
local missing, score = {}, now + SLACK_MS
local at_once = math.max(1, math.min(CHUNK, math.floor(100000 / (redis.call('llen', queue) + 1))))
for _, waiter in ipairs(redis.call('zrange', tickets, '0', at_once - 1)) do
if most then
if tonumber(redis.call('zscore', tickets, waiter)) >= tonumber(most) then
break
end
elseif first and redis.call('zscore', scores, waiter) then
break
end
missing[#missing + 1] = waiter
end
for i = #missing, 1, -1 do
redis.call('lrem', queue, '0', missing[i])
redis.call('lpush', queue, missing[i])
redis.call('zadd', scores, score, missing[i])
end
return #missing > 0
end
local function is_missing(queue, scores, tickets, foremost, first)
if not first then
return true
end
return redis.call('zscore', tickets, first)
or not redis.call('zscore', scores, foremost) and redis.call('zcard', scores) >= redis.call('llen', queue)
end
local function head(queue, scores, records, tickets, now, java_wait_ms)
for _ = 1, CHUNKS do
local first = redis.call('lindex', queue, '0')
local foremost = redis.call('zrange', tickets, '0', '0')[1]
if not first and not foremost then
return nil, now
end
now = now or server_time()
local is_restored = foremost and foremost ~= first and is_missing(queue, scores, tickets, foremost, first)
and put_back(queue, scores, tickets, first, now)
if first and not is_restored then
local record = redis.call('hget', records, first)
if record then
if alive_until(record) > now then
return first, now
end
remove_dead(queue, scores, records, tickets, now)
leave_to_java(queue, scores, tickets)
else
local till = tonumber(redis.call('zscore', scores, first))
if not till then
till = now + java_wait_ms
redis.call('zadd', scores, till, first)
end
if till > now then
return first, now
end
redis.call('lpop', queue)
forget(scores, records, tickets, { first })
end
end
end
return nil, now, true
end
local function skip_java(queue, records, from, step)
local java, at = {}, from
while true do
local waiters = step > 0 and redis.call('lrange', queue, at, at + CHUNK - 1)
or redis.call('lrange', queue, at - CHUNK + 1, at)
if #waiters == 0 then
return nil, java
end
for i = 1, #waiters do
local waiter = waiters[step > 0 and i or #waiters + 1 - i]
local record = redis.call('hget', records, waiter)
if record then
return record, java
end
java[#java + 1] = waiter
end
at = at + step * CHUNK
if step < 0 and #waiters < CHUNK then
return nil, java
end
end
end
local KEEP_MS = 86400000

local function expire_queue(queue, scores, records, tickets, score_ms, allowance_ms)
redis.call('pexpire', queue, score_ms + KEEP_MS)
redis.call('pexpire', scores, score_ms + KEEP_MS)
redis.call('pexpire', records, score_ms + alive_ms(allowance_ms))
redis.call('pexpire', tickets, score_ms + alive_ms(allowance_ms))
end
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, lease_ms, allowance_ms, java_wait_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local left_ms = redis.call('pttl', lock)
local is_free = left_ms == -2
if not is_free then
if redis.call('hexists', lock, owner) == 1 then
if left_ms < tonumber(lease_ms) then
redis.call('pexpire', lock, lease_ms)
end
return nil
end
left_ms = occupied_reply(lock, left_ms)
if left_ms < NO_KNOWN_END then
return left_ms
end
end

local own_record = redis.call('hget', records, owner)
local first, now, now_us, is_cut
if own_record or not is_free or redis.call('exists', queue) == 1 then
now, now_us = server_time()
if own_record then
redis.call('hset', records, owner, new_record(now, allowance_ms, java_before(own_record)))
end
first, now, is_cut = head(queue, scores, records, tickets, now, java_wait_ms)
if is_cut then
return ATTEMPT_AGAIN
end
if own_record and first ~= owner and not redis.call('zscore', tickets, owner) then
own_record = nil -- another program removed its ticket
end
end
if is_free and (not first or first == owner) then
create_hold(lock, lease_ms, owner, '1')
if first then
redis.call('lpop', queue)
forget(scores, records, tickets, { owner })
leave_to_java(queue, scores, tickets)
end
return nil
end

local is_new = false
if allowance_ms > 0 and not own_record then
local score = now + allowance_ms + SLACK_MS
local had_score = redis.call('zadd', scores, score, owner) == 0
local queued, last = redis.call('llen', queue), redis.call('zrange', tickets, '-1', '-1', 'withscores')
local ticket = string.format('%.0f', math.max(now_us, (tonumber(last[2]) or 0) + 1))
if redis.call('zscore', tickets, owner) or had_score and queued >= redis.call('zcard', scores) then
redis.call('zadd', tickets, 'nx', ticket, owner)
redis.call('hset', records, owner, new_record(now, allowance_ms, 0))
expire_queue(queue, scores, records, tickets, score - now, allowance_ms)
else
local java, before = {}, 0
if first then
local tail = redis.call('lindex', queue, '-1')
local nearest = redis.call('hget', records, tail)
if not nearest then
nearest, java = skip_java(queue, records, -1, -1)
end
before = #java + (nearest and java_before(nearest) or 0)
if before > 0 then
score = math.max(score, tonumber(redis.call('zscore', scores, tail) or 0)) + #java * java_wait_ms
redis.call('zadd', scores, score, owner)
end
end
redis.call('zadd', tickets, ticket, owner)
redis.call('hset', records, owner, new_record(now, allowance_ms, before))
if queued + 1 ~= redis.call('zcard', scores) then
redis.call('lrem', queue, '0', owner)
end
redis.call('rpush', queue, owner)
if not last[1] then
expire_queue(queue, scores, records, tickets, score - now, allowance_ms)
end
is_new = true
first = first or owner
end
end

if is_free then
redis.pcall('publish', channel .. ':' .. first, '0')
end
if is_new then
return QUEUED
end
return not is_free and first == owner and left_ms or NO_KNOWN_END
=== fair/heartbeat.lua
#!lua flags=allow-oom
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local SLACK_MS = 60000

local CHUNK, CHUNKS = 100, 20

local function alive_ms(allowance_ms)
return allowance_ms + math.floor(allowance_ms / 3)
end

local function new_record(now, allowance_ms, java_before)
return string.format('%.0f %.0f', now + alive_ms(allowance_ms), java_before)
end

local function java_before(record)
return tonumber(string.match(record, ' (%d+)$'))
end
local function alive_until(record)
return tonumber(string.match(record, '^%d+'))
end
local function forget(scores, records, tickets, waiters)
redis.call('zrem', scores, unpack(waiters))
redis.call('hdel', records, unpack(waiters))
redis.call('zrem', tickets, unpack(waiters))
end
local function leave_to_java(queue, scores, tickets)
if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
redis.call('persist', queue)
redis.call('persist', scores)
end
end
local function remove_dead(queue, scores, records, tickets, now)
local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
local dead = {}
for i, record in ipairs(redis.call('hmget', records, unpack(waiters))) do
if not record or alive_until(record) > now then
break
end
dead[i] = waiters[i]
end
if #dead > 0 then
redis.call('lpop', queue, #dead)
forget(scores, records, tickets, dead)
end
end
local function put_back(queue, scores, tickets, first, now)
local most = first and redis.call('zscore', tickets, first)
local missing, score = {}, now + SLACK_MS
local at_once = math.max(1, math.min(CHUNK, math.floor(100000 / (redis.call('llen', queue) + 1))))
for _, waiter in ipairs(redis.call('zrange', tickets, '0', at_once - 1)) do
if most then
if tonumber(redis.call('zscore', tickets, waiter)) >= tonumber(most) then
break
end
elseif first and redis.call('zscore', scores, waiter) then
break
end
missing[#missing + 1] = waiter
end
for i = #missing, 1, -1 do
redis.call('lrem', queue, '0', missing[i])
redis.call('lpush', queue, missing[i])
redis.call('zadd', scores, score, missing[i])
end
return #missing > 0
end
local function is_missing(queue, scores, tickets, foremost, first)
if not first then
return true
end
return redis.call('zscore', tickets, first)
or not redis.call('zscore', scores, foremost) and redis.call('zcard', scores) >= redis.call('llen', queue)
end
local function head(queue, scores, records, tickets, now, java_wait_ms)
for _ = 1, CHUNKS do
local first = redis.call('lindex', queue, '0')
local foremost = redis.call('zrange', tickets, '0', '0')[1]
if not first and not foremost then
return nil, now
end
now = now or server_time()
local is_restored = foremost and foremost ~= first and is_missing(queue, scores, tickets, foremost, first)
and put_back(queue, scores, tickets, first, now)
if first and not is_restored then
local record = redis.call('hget', records, first)
if record then
if alive_until(record) > now then
return first, now
end
remove_dead(queue, scores, records, tickets, now)
leave_to_java(queue, scores, tickets)
else
local till = tonumber(redis.call('zscore', scores, first))
if not till then
till = now + java_wait_ms
redis.call('zadd', scores, till, first)
end
if till > now then
return first, now
end
redis.call('lpop', queue)
forget(scores, records, tickets, { first })
end
end
end
return nil, now, true
end
local function skip_java(queue, records, from, step)
local java, at = {}, from
while true do
local waiters = step > 0 and redis.call('lrange', queue, at, at + CHUNK - 1)
or redis.call('lrange', queue, at - CHUNK + 1, at)
if #waiters == 0 then
return nil, java
end
for i = 1, #waiters do
local waiter = waiters[step > 0 and i or #waiters + 1 - i]
local record = redis.call('hget', records, waiter)
if record then
return record, java
end
java[#java + 1] = waiter
end
at = at + step * CHUNK
if step < 0 and #waiters < CHUNK then
return nil, java
end
end
end
local KEEP_MS = 86400000

local function expire_queue(queue, scores, records, tickets, score_ms, allowance_ms)
redis.call('pexpire', queue, score_ms + KEEP_MS)
redis.call('pexpire', scores, score_ms + KEEP_MS)
redis.call('pexpire', records, score_ms + alive_ms(allowance_ms))
redis.call('pexpire', tickets, score_ms + alive_ms(allowance_ms))
end
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local allowance_ms, java_wait_ms, owners = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local now = server_time()
local waiters, kept, index = {}, {}, {}
for owner in string.gmatch(owners, '%S+') do
waiters[#waiters + 1] = owner
end
local found = redis.call('hmget', records, unpack(waiters))
local is_complete = redis.call('hlen', records) == redis.call('zcard', tickets)
local own_records = {}
for i, owner in ipairs(waiters) do
found[i] = found[i] and (is_complete or redis.call('zscore', tickets, owner)) and found[i]
kept[i] = found[i] and PLACE_KEPT or LOST
if found[i] then
index[owner] = i
own_records[#own_records + 1] = owner
own_records[#own_records + 1] = new_record(now, allowance_ms, java_before(found[i]))
end
end
if #own_records > 0 then
redis.call('hset', records, unpack(own_records))
end

local first, _, is_cut = head(queue, scores, records, tickets, now, java_wait_ms)

if #own_records > 0 then
local score, nearest = now + allowance_ms + SLACK_MS, first and redis.call('hget', records, first)
if first and not nearest then
local java
nearest, java = skip_java(queue, records, 0, 1)
for _, waiter in ipairs(java) do
score = math.max(score, tonumber(redis.call('zscore', scores, waiter) or 0)) + java_wait_ms
end
end
local passed, most, raised = nearest and java_before(nearest) or 0, score, {}
for i, owner in ipairs(waiters) do
if found[i] then
local between = math.max(0, java_before(found[i]) - passed)
local own = score + between * java_wait_ms
most = math.max(most, own)
raised[#raised + 1] = own
raised[#raised + 1] = owner
end
end
redis.call('zadd', scores, 'xx', unpack(raised))
expire_queue(queue, scores, records, tickets, most - now, allowance_ms)
end

if is_cut then
for i, reply in ipairs(kept) do
kept[i] = reply == PLACE_KEPT and MORE_DEAD or reply
end
elseif first and redis.call('exists', lock) == 0 then
redis.pcall('publish', channel .. ':' .. first, '0')
if index[first] then
kept[index[first]] = FIRST_AND_FREE
end
end
return kept
=== fair/release.lua
#!lua flags=allow-oom
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function occupied_reply(lock, left_ms)
local fields = redis.call('hrandfield', lock, '2', 'withvalues')
if #fields == 2 and is_holder(fields[1], fields[2]) then
return left_ms
end
local mode = redis.call('hget', lock, 'mode')
return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
local function end_hold(lock, owner)
if redis.call('hdel', lock, owner) == 0 then
return nil
end
local is_data = redis.pcall('exists', lock) == 1 and occupied_reply(lock, 0) == NOT_A_LOCK
if is_data then
redis.call('persist', lock)
end
return is_data
end
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local SLACK_MS = 60000

local CHUNK, CHUNKS = 100, 20
local function alive_until(record)
return tonumber(string.match(record, '^%d+'))
end
local function forget(scores, records, tickets, waiters)
redis.call('zrem', scores, unpack(waiters))
redis.call('hdel', records, unpack(waiters))
redis.call('zrem', tickets, unpack(waiters))
end
local function leave_to_java(queue, scores, tickets)
if redis.call('exists', tickets) == 0 and redis.call('exists', queue) == 1 then
redis.call('persist', queue)
redis.call('persist', scores)
end
end
local function remove_dead(queue, scores, records, tickets, now)
local waiters = redis.call('lrange', queue, '0', CHUNK - 1)
local dead = {}
for i, record in ipairs(redis.call('hmget', records, unpack(waiters))) do
if not record or alive_until(record) > now then
break
end
dead[i] = waiters[i]
end
if #dead > 0 then
redis.call('lpop', queue, #dead)
forget(scores, records, tickets, dead)
end
end
local function put_back(queue, scores, tickets, first, now)
local most = first and redis.call('zscore', tickets, first)
local missing, score = {}, now + SLACK_MS
local at_once = math.max(1, math.min(CHUNK, math.floor(100000 / (redis.call('llen', queue) + 1))))
for _, waiter in ipairs(redis.call('zrange', tickets, '0', at_once - 1)) do
if most then
if tonumber(redis.call('zscore', tickets, waiter)) >= tonumber(most) then
break
end
elseif first and redis.call('zscore', scores, waiter) then
break
end
missing[#missing + 1] = waiter
end
for i = #missing, 1, -1 do
redis.call('lrem', queue, '0', missing[i])
redis.call('lpush', queue, missing[i])
redis.call('zadd', scores, score, missing[i])
end
return #missing > 0
end
local function is_missing(queue, scores, tickets, foremost, first)
if not first then
return true
end
return redis.call('zscore', tickets, first)
or not redis.call('zscore', scores, foremost) and redis.call('zcard', scores) >= redis.call('llen', queue)
end
local function head(queue, scores, records, tickets, now, java_wait_ms)
for _ = 1, CHUNKS do
local first = redis.call('lindex', queue, '0')
local foremost = redis.call('zrange', tickets, '0', '0')[1]
if not first and not foremost then
return nil, now
end
now = now or server_time()
local is_restored = foremost and foremost ~= first and is_missing(queue, scores, tickets, foremost, first)
and put_back(queue, scores, tickets, first, now)
if first and not is_restored then
local record = redis.call('hget', records, first)
if record then
if alive_until(record) > now then
return first, now
end
remove_dead(queue, scores, records, tickets, now)
leave_to_java(queue, scores, tickets)
else
local till = tonumber(redis.call('zscore', scores, first))
if not till then
till = now + java_wait_ms
redis.call('zadd', scores, till, first)
end
if till > now then
return first, now
end
redis.call('lpop', queue)
forget(scores, records, tickets, { first })
end
end
end
return nil, now, true
end
local lock, queue, scores, records, tickets, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, keep, java_wait_ms = ARGV[1], ARGV[2], ARGV[3]

if keep ~= '0' then
local count = tonumber(redis.call('hget', lock, owner))
if count then
if count > tonumber(keep) then
redis.call('hset', lock, owner, keep)
end
return LOWERED
end
end

local function leave()
local rank = redis.call('zrank', tickets, owner)
local from_front = not rank or rank < redis.call('zcard', tickets) / 2
local left = redis.call('hdel', records, owner) + redis.call('zrem', scores, owner) + redis.call('zrem', tickets, owner)
if left == 0 then
return false
end
redis.call('lrem', queue, from_front and '1' or '-1', owner)
leave_to_java(queue, scores, tickets)
return true
end

local is_data = end_hold(lock, owner)
if is_data == nil then -- a holder has no place in the queue: its acquire removed the place
if not leave() then
return LOST
end
if redis.call('exists', lock) == 1 then
return 0
end
end
local is_known, first = pcall(head, queue, scores, records, tickets, nil, java_wait_ms)
local told = is_known and (not first or redis.pcall('publish', channel .. ':' .. first, '0'))
return is_data and BESIDE_DATA or (told == true or type(told) == 'number') and 0 or NOBODY_TOLD
=== fenced/acquire.lua
#!lua
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function occupied_reply(lock, left_ms)
local fields = redis.call('hrandfield', lock, '2', 'withvalues')
if #fields == 2 and is_holder(fields[1], fields[2]) then
return left_ms
end
local mode = redis.call('hget', lock, 'mode')
return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
local lock, counter = KEYS[1], KEYS[2]
local owner, lease_ms = ARGV[1], ARGV[2]

local function failed(reply)
local is_value = string.find(reply.err, '^WRONGTYPE') or string.find(reply.err, 'not an integer', 1, true)
return (is_value or string.find(reply.err, 'overflow', 1, true)) and CANNOT_COUNT or reply
end

local function next_token()
local _, now_us = server_time()
local count = redis.pcall('incr', counter)
if type(count) == 'table' then
return failed(count)
end
if count < tonumber(now_us) then
redis.call('set', counter, now_us)
return now_us
end
return redis.call('get', counter)
end

local function own_token()
local token = redis.pcall('get', counter)
if not token then
return next_token()
end
if type(token) == 'table' then
return failed(token)
end
local is_in_range = #token < 19 or (#token == 19 and token <= '9223372036854775807')
return is_in_range and string.find(token, '^[1-9]%d*$') and token or CANNOT_COUNT
end

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
redis.call('pexpire', lock, lease_ms)
local token = next_token()
if type(token) ~= 'string' then
return token
end
redis.call('hset', lock, owner, '1')
redis.call('pexpire', lock, lease_ms)
return token
end
if redis.call('hexists', lock, owner) == 1 then
if left_ms < tonumber(lease_ms) then
redis.call('pexpire', lock, lease_ms)
end
return own_token()
end
return occupied_reply(lock, left_ms)
=== read/acquire.lua
#!lua
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local WRITER = ':write'

local function is_writer(field)
return string.sub(field, -#WRITER) == WRITER
end
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function intent_key(lock)
return tag_of(lock) .. ':lockkeeper_intent'
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local function grant_of(keys, count)
for i = 1, count do
local grant = redis.pcall('get', keys .. i)
if type(grant) == 'string' then
return grant
end
end
return nil
end
local function count_of(lock, field)
return tonumber(redis.call('hget', lock, field)) or 0
end
local function remove_keys(keys, first, last)
for i = first, last do
redis.call('del', keys .. i)
end
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local function is_side(field, value)
return is_holder(is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field, value)
end
local function written_ms(lock)
local fields = redis.call('hrandfield', lock, '3', 'withvalues')
for i = 1, #fields, 2 do
if is_writer(fields[i]) and is_side(fields[i], fields[i + 1]) then
return redis.call('pttl', lock)
end
end
return NOT_A_LOCK
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local function other_reader_ms(lock, one)
local met_dead = true
while met_dead do
met_dead = false
local found = redis.call('hrandfield', lock, '3', 'withvalues')
for i = 1, #found, 2 do
local reader, count = found[i], found[i + 1]
if reader ~= 'mode' and reader ~= one then
if not is_side(reader, count) then
return NOT_A_LOCK
end
local lasts_ms = longest(hold_keys(lock, reader), tonumber(count))
if lasts_ms ~= -2 then
return lasts_ms
end
redis.call('hdel', lock, reader)
met_dead = true
end
end
end
return nil
end
local function other_kind_reply(lock, mode)
local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
end
local lock, channel = KEYS[1], KEYS[2]
local owner, grant, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local mode = redis.call('hget', lock, 'mode')
if mode and mode ~= 'read' and mode ~= 'write' or not mode and redis.call('exists', lock) == 1 then
return other_kind_reply(lock, mode)
end
if mode == 'write' and redis.call('hexists', lock, owner .. WRITER) == 0 then
return written_ms(lock)
end

local function stopped_ms()
local intent = intent_key(lock)
local left_ms = redis.call('pttl', intent)
if left_ms <= 0 then
return 0
end
local value = redis.pcall('get', intent)
local calm_ms = type(value) == 'string' and tonumber(string.match(value, '^%d+'))
return calm_ms and math.max(left_ms - calm_ms, 0) or 0
end

local keys, count = hold_keys(lock, owner), mode and count_of(lock, owner) or 0
local found = grant_of(keys, count)
if found == grant then
redis.call('pexpire', keys .. '1', lease_ms, 'gt')
redis.call('pexpire', lock, lease_ms, 'gt')
return nil
end
if found and tonumber(found) > tonumber(grant) then
return LOST
end
if mode ~= 'write' and not found then
local wait_ms = stopped_ms()
if wait_ms > 0 then
return wait_ms
end
end
remove_keys(keys, 1, count)
local is_raised = redis.call('pexpire', lock, lease_ms, 'gt') == 1
if mode == 'read' and not is_raised and redis.call('pttl', lock) == -1
and (redis.call('hlen', lock) == 1 or other_reader_ms(lock, owner) == NOT_A_LOCK) then
return NOT_A_LOCK
end
redis.call('set', keys .. '1', grant, 'px', lease_ms)
redis.call('hset', lock, 'mode', mode or 'read', owner, '1')
if not mode then
redis.call('pexpire', lock, lease_ms)
end
return nil
=== read/reenter.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local function count_of(lock, field)
return tonumber(redis.call('hget', lock, field)) or 0
end
local function grant_of(keys, count)
for i = 1, count do
local grant = redis.pcall('get', keys .. i)
if type(grant) == 'string' then
return grant
end
end
return nil
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local lock, channel = KEYS[1], KEYS[2]
local owner, grant, want, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local keys, count = hold_keys(lock, owner), count_of(lock, owner)
if grant_of(keys, count) ~= grant then
return LOST
end
local lasts_ms = longest(keys, count)
if lasts_ms < tonumber(lease_ms) then
lasts_ms = lease_ms
end
redis.call('set', keys .. '1', grant, 'px', lasts_ms)
redis.call('pexpire', lock, lasts_ms, 'gt')
if count < tonumber(want) then
for i = count + 1, tonumber(want) do
redis.call('set', keys .. i, grant, 'px', lease_ms)
end
redis.call('hset', lock, owner, want)
end
return nil
=== read/release.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local WRITER = ':write'

local function is_writer(field)
return string.sub(field, -#WRITER) == WRITER
end
local function is_side(field, value)
return is_holder(is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field, value)
end
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local function count_of(lock, field)
return tonumber(redis.call('hget', lock, field)) or 0
end
local function grant_of(keys, count)
for i = 1, count do
local grant = redis.pcall('get', keys .. i)
if type(grant) == 'string' then
return grant
end
end
return nil
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local function remove_keys(keys, first, last)
for i = first, last do
redis.call('del', keys .. i)
end
end
local function other_reader_ms(lock, one)
local met_dead = true
while met_dead do
met_dead = false
local found = redis.call('hrandfield', lock, '3', 'withvalues')
for i = 1, #found, 2 do
local reader, count = found[i], found[i + 1]
if reader ~= 'mode' and reader ~= one then
if not is_side(reader, count) then
return NOT_A_LOCK
end
local lasts_ms = longest(hold_keys(lock, reader), tonumber(count))
if lasts_ms ~= -2 then
return lasts_ms
end
redis.call('hdel', lock, reader)
met_dead = true
end
end
end
return nil
end
local function other_kind_reply(lock, mode)
local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
end
local function free_lock(lock, ...)
redis.call('hdel', lock, 'mode', ...)
local is_data = redis.call('exists', lock) == 1 and other_kind_reply(lock) == NOT_A_LOCK
if is_data then
redis.call('persist', lock)
end
return is_data
end
local MANY = 4

local lock, channel = KEYS[1], KEYS[2]
local owner, grant, keep, usual_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local function reader_ms_beside_data()
local fields, lasts_ms = redis.call('hgetall', lock), nil
for i = 1, #fields, 2 do
local reader, count = fields[i], fields[i + 1]
if reader ~= 'mode' and reader ~= owner and is_side(reader, count) then
local left_ms = longest(hold_keys(lock, reader), tonumber(count))
if left_ms == -2 then
redis.call('hdel', lock, reader)
else
lasts_ms = math.max(lasts_ms or 0, left_ms)
end
end
end
return lasts_ms
end

local keys, count = hold_keys(lock, owner), count_of(lock, owner)
local found = grant_of(keys, count)
if count == 0 then
local i = 1
while redis.call('get', keys .. i) == grant do
redis.call('del', keys .. i)
i = i + 1
end
return LOST
end
if found and found ~= grant and grant ~= '0' then
return LOST
end
if found and keep > 0 then
if keep < count then
redis.call('set', keys .. '1', found, 'px', longest(keys, count))
remove_keys(keys, keep + 1, count)
redis.call('hset', lock, owner, keep)
end
return LOWERED
end

local answer = found and 0 or LOST
if redis.call('hget', lock, 'mode') == 'write' then
redis.call('hdel', lock, owner)
remove_keys(keys, 1, count)
return answer
end
local other_ms = other_reader_ms(lock, owner)
if other_ms == NOT_A_LOCK then
other_ms = reader_ms_beside_data()
end
if not other_ms then
local is_data = free_lock(lock, owner)
remove_keys(keys, 1, count)
local told = redis.pcall('publish', channel, '0')
return found and (is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD) or answer
end
local left_ms = redis.call('pttl', lock)
local is_too_long = left_ms > usual_ms and longest(keys, count) > left_ms - 5 and other_ms < left_ms / 2
redis.call('hdel', lock, owner)
remove_keys(keys, 1, count)
if is_too_long and redis.call('hlen', lock) <= MANY then
left_ms = 0
for _, reader in ipairs(redis.call('hkeys', lock)) do
if reader ~= 'mode' then
left_ms = math.max(left_ms, longest(hold_keys(lock, reader), count_of(lock, reader)))
end
end
redis.call('pexpire', lock, left_ms)
end
return answer
=== read/renew.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function lost_or_error(reply)
local is_error = type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE'
return is_error and reply.err or LOST
end
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local function grant_of(keys, count)
for i = 1, count do
local grant = redis.pcall('get', keys .. i)
if type(grant) == 'string' then
return grant
end
end
return nil
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local lease_ms = ARGV[1]

local renewed = {}
for i = 1, #KEYS / 2 do
local lock, channel = KEYS[2 * i - 1], KEYS[2 * i]
local owner, grant, keep_ms = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
local value = redis.pcall('exists', lock, channel)
value = type(value) == 'number' and redis.pcall('hget', lock, owner) or value
local keys, count = hold_keys(lock, owner), type(value) == 'string' and tonumber(value) or 0
if grant_of(keys, count) == grant then
local ms = tonumber(keep_ms) > tonumber(lease_ms) and keep_ms or lease_ms
local is_longer = false
for hold = 1, count do
is_longer = redis.call('pexpire', keys .. hold, ms, 'gt') == 0 or is_longer
end
redis.call('pexpire', lock, is_longer and longest(keys, count) or ms, 'gt')
renewed[i] = RENEWED
else
renewed[i] = lost_or_error(value)
end
end
return renewed
=== rlock/acquire.lua
#!lua
local function create_hold(lock, lease_ms, ...)
redis.call('pexpire', lock, lease_ms)
redis.call('hset', lock, ...)
redis.call('pexpire', lock, lease_ms)
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function occupied_reply(lock, left_ms)
local fields = redis.call('hrandfield', lock, '2', 'withvalues')
if #fields == 2 and is_holder(fields[1], fields[2]) then
return left_ms
end
local mode = redis.call('hget', lock, 'mode')
return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
local lock = KEYS[1]
local owner, lease_ms = ARGV[1], ARGV[2]

local left_ms = redis.call('pttl', lock)
if left_ms == -2 then
create_hold(lock, lease_ms, owner, '1')
return nil
end
if redis.call('hexists', lock, owner) == 1 then
if left_ms < tonumber(lease_ms) then
redis.call('pexpire', lock, lease_ms)
end
return nil
end
return occupied_reply(lock, left_ms)
=== rlock/reenter.lua
#!lua flags=allow-oom
local function extend_lease(lock, lease_ms)
if redis.call('pexpire', lock, lease_ms, 'gt') == 0 then
redis.call('pexpire', lock, lease_ms, 'nx')
end
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local lock = KEYS[1]
local owner, want, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local count = tonumber(redis.call('hget', lock, owner))
if not count then
return LOST
end
extend_lease(lock, lease_ms)
if count < tonumber(want) then
redis.call('hset', lock, owner, want)
end
return nil
=== rlock/release.lua
#!lua flags=allow-oom
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function occupied_reply(lock, left_ms)
local fields = redis.call('hrandfield', lock, '2', 'withvalues')
if #fields == 2 and is_holder(fields[1], fields[2]) then
return left_ms
end
local mode = redis.call('hget', lock, 'mode')
return (mode == 'read' or mode == 'write') and OTHER_KIND or NOT_A_LOCK
end
local function end_hold(lock, owner)
if redis.call('hdel', lock, owner) == 0 then
return nil
end
local is_data = redis.pcall('exists', lock) == 1 and occupied_reply(lock, 0) == NOT_A_LOCK
if is_data then
redis.call('persist', lock)
end
return is_data
end
local lock = KEYS[1]
local owner, keep, channel = ARGV[1], ARGV[2], ARGV[3]

if keep ~= '0' then
local count = tonumber(redis.call('hget', lock, owner))
if not count then
return LOST
end
if count > tonumber(keep) then
redis.call('hset', lock, owner, keep)
end
return LOWERED
end
local is_data = end_hold(lock, owner)
if is_data == nil then
return LOST
end
local told = redis.pcall('publish', channel, '0')
return is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD or told
=== rlock/renew.lua
#!lua flags=allow-oom
local function extend_lease(lock, lease_ms)
if redis.call('pexpire', lock, lease_ms, 'gt') == 0 then
redis.call('pexpire', lock, lease_ms, 'nx')
end
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function lost_or_error(reply)
local is_error = type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE'
return is_error and reply.err or LOST
end
local lease_ms = ARGV[1]

local renewed = {}
for i, lock in ipairs(KEYS) do
local owner = ARGV[1 + i]
local found = redis.pcall('hexists', lock, owner)
if found == 1 then
if lease_ms ~= '0' then
extend_lease(lock, lease_ms)
end
renewed[i] = RENEWED
else
renewed[i] = lost_or_error(found)
end
end
return renewed
=== semaphore/acquire.lua
#!lua
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local function available_of(semaphore)
local text = redis.call('get', semaphore)
if not text then
return nil
end
return string.find(text, '^%-?%d+$') and tonumber(text) or false
end
local function permit_of(ids, number)
return string.sub(ids, 16 * number - 15, 16 * number)
end
local function expired_among(listed, before_ms)
for i = 2, #listed, 2 do
if tonumber(listed[i]) >= before_ms then
return i / 2 - 1
end
end
return #listed / 2
end
local ENDLESS = 922337203685477
local MANY = 100

local semaphore, permits = KEYS[1], KEYS[2]
local ids, total, lease_ms, slack_ms, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local available = available_of(semaphore)
if available == false then
return NOT_A_LOCK
end
local is_new = available == nil

local function add(count)
if not is_new then
available = redis.call('incrby', semaphore, count)
if available > 0 then
redis.pcall('publish', channel, available)
end
end
end

local now_ms, wanted = server_time(), #ids / 16
if is_new or available <= wanted then
local first = redis.call('zrange', permits, '0', '0', 'withscores')
if expired_among(first, now_ms - slack_ms) == 1 then
local oldest = redis.call('zrange', permits, '0', math.max(MANY, wanted), 'withscores')
local expired = math.min(expired_among(oldest, now_ms - slack_ms), math.max(MANY, wanted))
for i = 1, expired do
redis.call('zrem', permits, oldest[2 * i - 1])
end
first = { oldest[2 * expired + 1], oldest[2 * expired + 2] }
add(expired)
end
if is_new then
available = total - redis.call('zcard', permits)
end
if available < wanted then
local found = {}
for i = 1, wanted do
local id = permit_of(ids, i)
if redis.call('zscore', permits, id) then
found[#found + 1] = id
end
end
if wanted - #found > math.max(available, 0) then
local sum = available + redis.call('zcard', permits)
for _, id in ipairs(found) do
redis.call('zrem', permits, id)
end
if #found > 0 then
add(#found)
end
if wanted > sum then
return { TOO_MANY, sum }
end
local first_ms = first[2] and tonumber(first[2])
return first_ms and first_ms < ENDLESS and math.max(first_ms + slack_ms - now_ms, 0) or NO_KNOWN_END
end
end
end

local ends_ms, added = now_ms + lease_ms + slack_ms, 0
local ends = string.format('%.0f', ends_ms)
for i = 1, wanted do
local id = permit_of(ids, i)
if redis.call('zadd', permits, 'nx', ends, id) == 1 then
added = added + 1
elseif tonumber(redis.call('zscore', permits, id)) < ends_ms then
redis.call('zadd', permits, 'xx', ends, id)
end
end
if added > 0 then
available = available - added
if is_new then
redis.call('set', semaphore, available)
else
redis.call('incrby', semaphore, -added)
end
end
local in_use = redis.call('zcard', permits)
if in_use == added then
local left_ms = redis.call('pttl', semaphore)
if left_ms > 0 then
redis.call('pexpire', permits, left_ms)
end
end
return { available, available + in_use }
=== semaphore/release.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function permit_of(ids, number)
return string.sub(ids, 16 * number - 15, 16 * number)
end
local semaphore, permits = KEYS[1], KEYS[2]
local ids, channel = ARGV[1], ARGV[2]

local wanted, released = #ids / 16, 0
for i = 1, wanted do
released = released + redis.call('zrem', permits, permit_of(ids, i))
end
if released == 0 then
return LOST
end
local available = released
if redis.call('exists', semaphore) == 1 then
available = redis.call('incrby', semaphore, released)
end
local told = 0
if available > 0 then
told = redis.pcall('publish', channel, available)
end
return released < wanted and LOST or type(told) == 'table' and NOBODY_TOLD or told
=== semaphore/renew.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function lost_or_error(reply)
local is_error = type(reply) == 'table' and string.sub(reply.err, 1, 9) ~= 'WRONGTYPE'
return is_error and reply.err or LOST
end
local function server_time()
local time = redis.call('time')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
return math.floor(now_us / 1000), now_us
end
local function permit_of(ids, number)
return string.sub(ids, 16 * number - 15, 16 * number)
end
local lease_ms = tonumber(ARGV[1])

local now_ms, renewed = server_time(), {}
for i, permits in ipairs(KEYS) do
local ids, slack_ms = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
local ends_ms, earlier = now_ms + lease_ms + slack_ms, {}
renewed[i] = RENEWED
for number = 1, #ids / 16 do
local id = permit_of(ids, number)
local before_ms = redis.pcall('zscore', permits, id)
if type(before_ms) ~= 'string' then
renewed[i] = lost_or_error(before_ms)
elseif tonumber(before_ms) < ends_ms then
earlier[#earlier + 1] = id
end
end
if renewed[i] == RENEWED and lease_ms > 0 then
for _, id in ipairs(earlier) do
redis.call('zadd', permits, 'xx', string.format('%.0f', ends_ms), id)
end
end
end
return renewed
=== write/acquire.lua
#!lua
local function create_hold(lock, lease_ms, ...)
redis.call('pexpire', lock, lease_ms)
redis.call('hset', lock, ...)
redis.call('pexpire', lock, lease_ms)
end
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function intent_key(lock)
return tag_of(lock) .. ':lockkeeper_intent'
end
local WRITER = ':write'

local function is_writer(field)
return string.sub(field, -#WRITER) == WRITER
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local function is_side(field, value)
return is_holder(is_writer(field) and string.sub(field, 1, -#WRITER - 1) or field, value)
end
local function written_ms(lock)
local fields = redis.call('hrandfield', lock, '3', 'withvalues')
for i = 1, #fields, 2 do
if is_writer(fields[i]) and is_side(fields[i], fields[i + 1]) then
return redis.call('pttl', lock)
end
end
return NOT_A_LOCK
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local function other_reader_ms(lock, one)
local met_dead = true
while met_dead do
met_dead = false
local found = redis.call('hrandfield', lock, '3', 'withvalues')
for i = 1, #found, 2 do
local reader, count = found[i], found[i + 1]
if reader ~= 'mode' and reader ~= one then
if not is_side(reader, count) then
return NOT_A_LOCK
end
local lasts_ms = longest(hold_keys(lock, reader), tonumber(count))
if lasts_ms ~= -2 then
return lasts_ms
end
redis.call('hdel', lock, reader)
met_dead = true
end
end
end
return nil
end
local function other_kind_reply(lock, mode)
local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
end
local lock, channel = KEYS[1], KEYS[2]
local writer, lease_ms, turn_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local intent = intent_key(lock)
local mode = redis.call('hget', lock, 'mode')
if mode == 'write' then
if redis.call('hexists', lock, writer) == 1 then
redis.call('pexpire', lock, lease_ms, 'gt')
return nil
end
return written_ms(lock)
end
if mode == 'read' then
if redis.call('hlen', lock) == 1 then
return NOT_A_LOCK
end
local reader_ms = other_reader_ms(lock)
if reader_ms then
if turn_ms > 0 and reader_ms > 0 then
redis.call('set', intent, 9 * turn_ms .. ' ' .. writer, 'px', 10 * turn_ms, 'nx')
end
return reader_ms
end
redis.call('del', lock)
elseif mode or redis.call('exists', lock) == 1 then
return other_kind_reply(lock, mode)
end
redis.call('del', intent)
create_hold(lock, lease_ms, 'mode', 'write', writer, '1')
return nil
=== write/release.lua
#!lua flags=allow-oom
local NO_KNOWN_END, FREE, OTHER_KIND, QUEUED, NOT_A_LOCK = -1, -2, -3, -4, -5
local ATTEMPT_AGAIN, CANNOT_COUNT, LOST, LOWERED = -6, -7, -8, -9
local NOBODY_TOLD, BESIDE_DATA = -10, -11
local RENEWED, PLACE_KEPT, FIRST_AND_FREE, MORE_DEAD = -12, -13, -14, -15
local TOO_MANY = -16
local function tag_of(lock)
return string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
end
local function intent_key(lock)
return tag_of(lock) .. ':lockkeeper_intent'
end
local function count_of(lock, field)
return tonumber(redis.call('hget', lock, field)) or 0
end
local WRITER = ':write'

local function is_writer(field)
return string.sub(field, -#WRITER) == WRITER
end
local function hold_keys(lock, reader)
return tag_of(lock) .. ':' .. reader .. ':rwlock_timeout:'
end
local function grant_of(keys, count)
for i = 1, count do
local grant = redis.pcall('get', keys .. i)
if type(grant) == 'string' then
return grant
end
end
return nil
end
local TEN_YEARS_MS = 315360000000

local function longest(keys, count)
local longest_ms = -2
for i = 1, count do
local left_ms = redis.call('pttl', keys .. i)
if left_ms == -1 then
longest_ms = TEN_YEARS_MS
elseif left_ms >= 0 then
longest_ms = math.max(longest_ms, left_ms, 1)
end
end
return longest_ms
end
local function is_holder(field, value)
return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and string.find(value, '^%d+$')
end
local function other_kind_reply(lock, mode)
local fields = not mode and redis.call('hrandfield', lock, '2', 'withvalues') or {}
return #fields == 2 and is_holder(fields[1], fields[2]) and OTHER_KIND or NOT_A_LOCK
end
local function free_lock(lock, ...)
redis.call('hdel', lock, 'mode', ...)
local is_data = redis.call('exists', lock) == 1 and other_kind_reply(lock) == NOT_A_LOCK
if is_data then
redis.call('persist', lock)
end
return is_data
end
local lock, channel = KEYS[1], KEYS[2]
local writer, keep = ARGV[1], ARGV[2]

local function wake()
return redis.pcall('publish', channel, '1')
end

local count = count_of(lock, writer)
if count == 0 then
local intent = intent_key(lock)
local value = redis.pcall('get', intent)
if type(value) == 'string' and string.match(value, '^%d+ (.*)$') == writer then
redis.call('del', intent)
wake()
end
return LOST
end
if keep ~= '0' then
if tonumber(keep) < count then
redis.call('hset', lock, writer, keep)
end
return LOWERED
end
local reader = string.sub(writer, 1, -#WRITER - 1)
local keys, holds = hold_keys(lock, reader), count_of(lock, reader)
local is_data = false
if grant_of(keys, holds) then
redis.call('hdel', lock, writer)
redis.call('hset', lock, 'mode', 'read')
redis.call('pexpire', lock, longest(keys, holds))
else
is_data = free_lock(lock, writer, reader)
end
local told = wake()
return is_data and BESIDE_DATA or type(told) == 'table' and NOBODY_TOLD or told
