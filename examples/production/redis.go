package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/redislimit"
)

// A redisConfig holds the values of the flags about Redis.
type redisConfig struct {
	url      string // empty if each process has its own limits
	timeout  time.Duration
	fallback bool // whether a process uses its own limits while Redis is unavailable
}

// openLimiter returns a Limiter on Redis, or one for this process if Redis is not configured. The
// second result closes it.
func (c *redisConfig) openLimiter(health *healthChecker) (llmhttp.Limiter, func() error, error) {
	if c.url == "" {
		return llmhttp.NewLimiter(), func() error { return nil }, nil
	}
	client, err := newRedis(c.url)
	if err != nil {
		return nil, nil, err
	}
	logging.Disable() // redislimit logs what matters, in JSON
	opts := &redislimit.Options{Timeout: c.timeout}
	if c.fallback {
		opts.Fallback = llmhttp.NewLimiter()
	}
	limiter, err := redislimit.New(client, opts)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	probe := limiter
	if c.fallback { // which would answer in place of Redis
		if probe, err = redislimit.New(client, &redislimit.Options{Timeout: c.timeout}); err != nil {
			return nil, nil, errors.Join(err, limiter.Close(), client.Close())
		}
	}
	health.add("limits", neverUnready, func(ctx context.Context) error { return tryTake(ctx, probe) })
	return limiter, func() error { return errors.Join(probe.Close(), limiter.Close(), client.Close()) }, nil
}

// tryTake takes from a bucket of its own, with the script that serves requests.
func tryTake(ctx context.Context, l llmhttp.Limiter) error {
	_, err := l.Take(
		ctx,
		llmhttp.BucketAmount{
			Subject: llmhttp.SubjectID{Kind: "probe", ID: "readyz"},
			Bucket:  "readyz",
			Rate:    llmhttp.Rate{N: 1000, Per: time.Second},
			Amount:  1,
		},
	)
	return err
}

// errRedisURL contains no part of the URL, because any part may be a password.
var errRedisURL = errors.New(
	"-redis: expected a URL such as redis://user:password@host:6379/0, redis+cluster://user:password@host:6379?addr=host2:6379 " +
		"or redis+sentinel://user:password@sentinel:26379/0?master_name=name&addr=sentinel2:26379, with special characters escaped",
)

// newRedis returns a client for a single server, a cluster or the master that
// Sentinels know. The user and the password of the URL are for Redis; those of
// Sentinels are in the parameters sentinel_username and sentinel_password. With
// the scheme rediss, connections use TLS.
func newRedis(text string) (redis.UniversalClient, error) {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.Contains(u.Path+u.RawQuery, "@") {
		return nil, errRedisURL
	}
	// A single attempt to connect lets requests fail at once if Redis is
	// unavailable.
	var kind string
	u.Scheme, kind, _ = strings.Cut(u.Scheme, "+")
	switch kind {
	case "":
		if o, err := redis.ParseURL(u.String()); err == nil {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1
			return redis.NewClient(o), nil
		}
	case "cluster":
		if o, err := redis.ParseClusterURL(u.String()); err == nil {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1
			return redis.NewClusterClient(o), nil
		}
	case "sentinel":
		if o, err := parseSentinels(u); err == nil {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1
			return redis.NewFailoverClient(o), nil
		}
	}
	return nil, errRedisURL
}

func parseSentinels(u *url.URL) (*redis.FailoverOptions, error) {
	query := u.Query()
	username, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	o, err := redis.ParseFailoverURL(u.String())
	if err == nil && o.MasterName == "" {
		err = errors.New("master_name is missing")
	}
	if err != nil {
		return nil, err
	}
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword // the package reads them as the Sentinels'
	o.SentinelUsername, o.SentinelPassword = username, password
	return o, nil
}
