-- Acquires or renews leases in KEYS[1], a sorted set of the names of leases by
-- the time at which each expires, in milliseconds of the server's clock.
--
-- ARGV[1]  the maximum number of leases, to acquire; 0 to renew
-- ARGV[2]  the duration of a lease in milliseconds
-- ARGV[3]  and on: the names
--
-- Returns 0 if there are already the maximum number of leases, and otherwise 1.

local limit, duration = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if limit > 0 then
	redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
	if redis.call('ZCARD', KEYS[1]) >= limit then
		return 0
	end
end
for i = 3, #ARGV do
	redis.call('ZADD', KEYS[1], now + duration, ARGV[i])
end
-- Processes may use leases of different durations.
if redis.call('PTTL', KEYS[1]) < duration then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
