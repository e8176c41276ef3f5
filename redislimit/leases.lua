-- Makes or renews leases of KEYS[1], a sorted set of names by the time, in
-- milliseconds of the server's clock, at which each expires.
--
-- ARGV[1]   how many leases there may be, for a new one; 0 to renew
-- ARGV[2]   for how long, in milliseconds
-- ARGV[3..] the names
--
-- It returns 0 if there are that many already, and else 1.

local limit, lasts = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if limit > 0 then
	redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
	if redis.call('ZCARD', KEYS[1]) >= limit then
		return 0
	end
end
for i = 3, #ARGV do
	redis.call('ZADD', KEYS[1], now + lasts, ARGV[i])
end
if redis.call('PTTL', KEYS[1]) < lasts then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
