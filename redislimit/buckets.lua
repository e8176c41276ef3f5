-- Takes tokens from the buckets KEYS.
--
-- ARGV[1]  "take": from all of them, or from none if one holds too little
--          "adjust": from all of them, whatever they hold
-- ARGV[2]  the time in microseconds, in tests; if empty, the time of the server
-- ARGV[3]  and on, for each key: the cost; and the rate of the bucket, which is
--          n tokens in per nanoseconds with a burst
--
-- Returns three integers for each key, which may be texts: the remaining tokens; the microseconds
-- until the bucket holds the cost, 0 if it did; and the microseconds until the
-- bucket is full. -1 microseconds mean never.
--
-- A bucket is stored as five doubles: its tokens at a time, that time, n, per
-- in microseconds and the burst. A full bucket is not stored. A bucket from
-- which nothing is taken is not written, so that rounding errors do not add up.

local never = -1
local longest = 9.2e15          -- microseconds that fit in a Go time.Duration
local largest = 9.2e18          -- tokens that fit in 63 bits
local keep = 10 * 365 * 86400e3 -- milliseconds, the maximum expiry of a bucket

local adjust = ARGV[1] == 'adjust'
local now = tonumber(ARGV[2])
if not now then
	local time = redis.call('TIME')
	now = time[1] * 1e6 + time[2]
end

-- held returns the tokens of b when elapsed microseconds have passed.
local function held(b, elapsed)
	return math.min(b.burst, b.level + elapsed * b.n / b.per)
end

-- wait returns the microseconds from now until b holds a number of tokens.
local function wait(b, tokens)
	if b.n == 0 or tokens > b.burst then
		return never
	end
	local elapsed = math.ceil((tokens - b.level) * b.per / b.n)
	if held(b, elapsed) < tokens then
		elapsed = elapsed + 1 -- a rounding error
	end
	elapsed = elapsed - (now - b.at)
	if elapsed > longest then
		return never
	end
	return math.max(elapsed, 1)
end

-- load returns a bucket with the given rate. data is the stored bucket, or false
-- if none is stored.
local function load(data, n, per, burst)
	local b = {level = burst, at = now, n = n, per = per, burst = burst}
	if not data then
		return b
	end
	local old = {}
	old.level, old.at, old.n, old.per, old.burst = struct.unpack('<ddddd', data)
	local holds = held(old, math.max(now - old.at, 0))
	if holds >= old.burst then
		return b -- full, and about to expire
	end
	-- A time in the future shows that the clock was set back. The bucket is
	-- then stored with the present time, or it would not refill until that time.
	if old.at <= now and old.n == n and old.per == per and old.burst == burst then
		b.level, b.at = old.level, old.at
	else
		b.level = math.min(holds, burst)
		b.changed = true
	end
	return b
end

local function store(key, b, reset)
	if b.holds >= b.burst then
		redis.call('DEL', key)
		return
	end
	local expiry = keep
	if reset ~= never then
		expiry = math.min(math.ceil(reset / 1000) + 1, keep)
	end
	redis.call('SET', key, struct.pack('<ddddd', b.level, b.at, b.n, b.per, b.burst), 'PX', expiry)
end

local data = redis.call('MGET', unpack(KEYS))
local buckets, granted = {}, true
for i = 1, #KEYS do
	local cost, n, per, burst = tonumber(ARGV[4*i - 1]), tonumber(ARGV[4*i]), tonumber(ARGV[4*i + 1]) / 1000, tonumber(ARGV[4*i + 2])
	local b = load(data[i], n, per, burst)
	b.cost, b.holds, b.retry = cost, held(b, now - b.at), 0
	if not adjust and cost > 0 and b.holds < cost then
		b.retry = wait(b, cost)
		granted = false
	end
	buckets[i] = b
end

local levels = {}
for i, key in ipairs(KEYS) do
	local b = buckets[i]
	if granted and b.cost ~= 0 then
		b.level, b.at = math.min(b.holds - b.cost, b.burst), now
		b.holds = b.level
		b.changed = true
	end
	local reset = 0
	if b.holds < b.burst then
		reset = wait(b, b.burst)
	end
	if b.changed then
		store(key, b, reset)
	end
	if b.holds >= b.burst then
		levels[3*i - 2] = ARGV[4*i + 2] -- as it is: a double may be larger
	else
		levels[3*i - 2] = math.floor(math.min(math.max(b.holds, 0), largest))
	end
	levels[3*i - 1] = b.retry
	levels[3*i] = reset
end
return levels
