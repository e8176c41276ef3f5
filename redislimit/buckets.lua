-- Takes from the buckets KEYS, from all or from none; or adjusts them, which
-- takes whatever they hold.
--
-- ARGV[1]  take or adjust
-- ARGV[2]  for each key four doubles: the cost, and the rate of the bucket,
--          which is n tokens in per microseconds, and its burst
-- ARGV[3]  the time in microseconds, for tests; else it is the server's
--
-- It returns for each key how many tokens remain, in how many microseconds
-- there will be enough, 0 if there were, and in how many the bucket is full.
-- A time of -1 is never.
--
-- A bucket is five doubles: how many tokens it held, when, and its n, per and
-- burst. One that is full is not stored. Where nothing is taken nothing is
-- written either, so that to ask often adds no errors of rounding.

local never = -1
local longest = 9.2e15          -- microseconds that fit in 63 bits of nanoseconds
local largest = 9.2e18          -- tokens that fit in 63 bits
local keep = 10 * 365 * 86400e3 -- milliseconds that a bucket is kept at most

local adjust = ARGV[1] == 'adjust'
local now = tonumber(ARGV[3])
if not now then
	local time = redis.call('TIME')
	now = time[1] * 1e6 + time[2]
end

-- held returns what b holds after a number of microseconds.
local function held(b, elapsed)
	return math.min(b.burst, b.level + elapsed * b.n / b.per)
end

-- wait returns in how many microseconds b holds a number of tokens.
local function wait(b, tokens)
	if b.n == 0 or tokens > b.burst then
		return never
	end
	local elapsed = math.ceil((tokens - b.level) * b.per / b.n)
	if held(b, elapsed) < tokens then
		elapsed = elapsed + 1 -- what was lost in rounding
	end
	elapsed = elapsed - (now - b.at)
	if elapsed > longest then
		return never
	end
	return math.max(elapsed, 1)
end

local stored = redis.call('MGET', unpack(KEYS))
local buckets, list, retries, granted = {}, {}, {}, true
for i, key in ipairs(KEYS) do
	local cost, n, per, burst = struct.unpack('<dddd', ARGV[2], 32 * i - 31)
	local b = buckets[key]
	if not b then
		b = {level = burst, at = now, n = n, per = per, burst = burst, cost = 0}
		if stored[i] then
			local old = {}
			old.level, old.at, old.n, old.per, old.burst = struct.unpack('<ddddd', stored[i])
			-- A clock that was set back must not keep a bucket from filling.
			local holds = held(old, math.max(now - old.at, 0))
			if holds < old.burst then -- else it is like a new one, and about to expire
				if old.at <= now and old.n == n and old.per == per and old.burst == burst then
					b.level, b.at = old.level, old.at
				else
					b.level = math.min(holds, burst)
					b.changed = true
				end
			end
		end
		b.holds = held(b, now - b.at)
		buckets[key] = b
	end
	list[i] = b
	b.cost = b.cost + cost
	retries[i] = 0
	if cost > 0 and b.holds < b.cost and not adjust then
		retries[i] = wait(b, b.cost)
		granted = false
	end
end

for i, key in ipairs(KEYS) do
	local b = list[i]
	if granted and b.cost ~= 0 then
		b.level, b.at, b.cost = math.min(b.holds - b.cost, b.burst), now, 0
		b.holds = b.level
		b.changed = true
	end
	b.reset = 0
	if b.holds < b.burst then
		b.reset = wait(b, b.burst)
	end
	if b.changed then
		b.changed = false
		if b.holds < b.burst then
			local expires = keep
			if b.reset ~= never then
				expires = math.min(math.ceil(b.reset / 1000) + 1, keep)
			end
			redis.call('SET', key, struct.pack('<ddddd', b.level, b.at, b.n, b.per, b.burst), 'PX', expires)
		else
			redis.call('DEL', key)
		end
	end
end

local levels = {}
for i, b in ipairs(list) do
	levels[3 * i - 2] = math.floor(math.min(math.max(b.holds, 0), largest))
	levels[3 * i - 1] = retries[i]
	levels[3 * i] = b.reset
end
return levels
