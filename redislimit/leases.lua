-- Acquires, renews, settles, releases or counts leases of slots. A slot in KEYS is a sorted set of the
-- names of leases by the time at which each expires, in milliseconds of the server's clock. A
-- name ends in a colon and the amount of the lease. The score of the empty name is the sum of
-- all amounts, as a negative number, which is before all times.
--
-- ARGV[1]  "acquire": a lease in each of KEYS, or none if one of the slots has not enough left
--          "renew": leases in KEYS[1], whether they have expired or not
--          "settle": replaces a lease in each of KEYS by one that is not renewed
--          "release": leases in KEYS[1]
--          "count": what is in use of KEYS[1]
-- ARGV[2]  the duration of a lease in milliseconds, to acquire, to renew and to settle
-- ARGV[3]  and on: to acquire, for each key the limit and a name; to settle, for each key the
--          name of the lease and that of the other one, which is empty if there is none;
--          otherwise names
--
-- Returns what is in use to count. Otherwise it returns 0, or to acquire the index in KEYS of a
-- slot that is full, from 1.

local operation, duration = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function amount(name)
	return tonumber(string.match(name, ':(%d+)$'))
end

-- in_use returns the sum of the amounts in a slot.
local function in_use(key)
	return -tonumber(redis.call('ZSCORE', key, '') or 0)
end

-- remove removes leases. If Redis is out of memory, it executes ZINCRBY nevertheless, because
-- the script has written before.
local function remove(key, names)
	local sum = 0
	for _, name in ipairs(names) do
		sum = sum + redis.call('ZREM', key, name) * amount(name)
	end
	if sum > 0 then
		redis.call('ZINCRBY', key, sum, '')
		if redis.call('ZCARD', key) == 1 then
			redis.call('DEL', key)
		end
	end
end

local function remove_expired(key)
	remove(key, redis.call('ZRANGEBYSCORE', key, '(0', now))
end

-- put adds leases, or renews those that there are.
local function put(key, names)
	local sum = 0
	for _, name in ipairs(names) do
		sum = sum + redis.call('ZADD', key, now + duration, name) * amount(name)
	end
	if sum > 0 then
		redis.call('ZINCRBY', key, -sum, '')
	end
	-- Processes may use leases of different durations.
	if redis.call('PTTL', key) < duration then
		redis.call('PEXPIRE', key, ARGV[2])
	end
end

if operation == 'acquire' then
	for i, key in ipairs(KEYS) do
		remove_expired(key)
		if in_use(key) + amount(ARGV[2*i + 2]) > tonumber(ARGV[2*i + 1]) then
			return i
		end
	end
	for i, key in ipairs(KEYS) do
		put(key, {ARGV[2*i + 2]})
	end
elseif operation == 'renew' then
	put(KEYS[1], {unpack(ARGV, 3)})
elseif operation == 'settle' then
	for i, key in ipairs(KEYS) do
		remove(key, {ARGV[2*i + 1]})
		if ARGV[2*i + 2] ~= '' then
			put(key, {ARGV[2*i + 2]})
		end
	end
elseif operation == 'release' then
	remove(KEYS[1], {unpack(ARGV, 3)})
else
	remove_expired(KEYS[1])
	return in_use(KEYS[1])
end
return 0
