package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
)

// redisDo sends a command to the Redis server that url names.
func redisDo(t *testing.T, url string, args ...any) {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(o)
	defer c.Close()
	require.NoError(t, c.Do(t.Context(), args...).Err())
}

// A quota survives the loss of Redis and a restart, also of a process that is killed.
// It can be looked at, and be reset.
func TestQuota(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	dsn, models := newDatabase(t, servertest.SharedPostgres(t)), startUpstream(t, 0)
	begin := func() *process {
		return startCopy(t, dsn, server.DSN(), models, "-redis-timeout", "10s", "-key-ttl", "100ms", "-usage-delay", "0s")
	}
	p := begin()
	k := createKey(t, dsn, "--quota", "100/month")
	tokens := client{p.url, k.Secret}.mustChat(t, 30)
	used := tokens.PromptTokens + tokens.CompletionTokens
	require.Greater(t, used, 50)
	requireRefused := func(p *process) {
		t.Helper()
		status, reply := client{p.url, k.Secret}.send(t, "POST", chatPath, chatBody(false, 60))
		require.Equal(t, 429, status, reply)
		require.Contains(t, reply, "insufficient_quota")
	}
	requireRefused(p)
	redisDo(t, server.DSN(), "FLUSHALL")
	requireRefused(p)
	eventually(t, func(c *assert.CollectT) { require.Equal(c, 1, storedUsage(t, dsn, t.Name()).Requests) })
	require.NoError(t, p.Cmd.Process.Kill())
	p.Wait(t)
	p = begin()
	requireRefused(p)

	type quota struct {
		Used int `json:"used_tokens"`
		Left int `json:"left_tokens"`
	}
	assert.Equal(t, []quota{{used, 100 - used}}, runCtl[quota](t, dsn, "keys", "quota", k.ID))
	assert.Equal(t, []quota{{0, 100}}, runCtl[quota](t, dsn, "keys", "quota", "--reset", k.ID))
	eventually(t, func(c *assert.CollectT) {
		status, reply := client{p.url, k.Secret}.send(t, "POST", chatPath, chatBody(false, 30))
		require.Equal(c, 200, status, reply)
	})
}

// Prices make the usage endpoint report costs, and quotas of dollars work.
func TestPrices(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	p := startCopy(t, dsn, "", startUpstream(t, 0), "-prices", "testdata/prices.json", "-usage-delay", "0s")
	k := createKey(t, dsn, "--quota", "0.2usd/month")
	u := client{p.url, k.Secret}.mustChat(t, 10)
	status, reply := client{p.url, k.Secret}.send(t, "GET", usagePath, "")
	require.Equal(t, 200, status, reply)
	var got struct {
		Cents float64 `json:"total_usage"`
	}
	require.NoError(t, json.Unmarshal([]byte(reply), &got))
	want := 100 * (0.002*float64(u.PromptTokens) + 0.01*float64(u.CompletionTokens))
	assert.InDelta(t, want, got.Cents, 1e-6)
	require.Greater(t, want, 10.0)
	status, reply = client{p.url, k.Secret}.send(t, "POST", chatPath, chatBody(false, 200))
	assert.Equal(t, 429, status, reply)
	assert.Contains(t, reply, "insufficient_quota")
}

// A copy is not ready if Redis answers, but refuses the script.
func TestReadyz_RedisRefusesScripts(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	p := startCopy(t, newDatabase(t, servertest.SharedPostgres(t)), server.DSN(), startUpstream(t, 0), "-redis-timeout", "10s")
	p.awaitReply(t, "/readyz", "ok")
	redisDo(t, server.DSN(), "ACL", "SETUSER", "default", "-evalsha", "-eval")
	p.awaitReply(t, "/readyz", "ok\nlimits: failing")
	redisDo(t, server.DSN(), "ACL", "SETUSER", "default", "+@all")
	p.awaitReply(t, "/readyz", "ok")
}

// A copy is not ready if the database answers, but records no usage.
func TestReadyz_UsageFails(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	p := startCopy(t, dsn, "", startUpstream(t, 0), "-key-ttl", "100ms", "-key-grace", "0s", "-usage-delay", "10ms")
	k := createKey(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "ALTER TABLE llmhttp_usage_sums RENAME TO hidden")
	require.NoError(t, err)
	client{p.url, k.Secret}.mustChat(t, 1)
	p.awaitReply(t, "/readyz", "not ready\nusage: failing")
	_, err = conn.Exec(t.Context(), "ALTER TABLE hidden RENAME TO llmhttp_usage_sums")
	require.NoError(t, err)
	p.awaitReply(t, "/readyz", "ok")
	eventually(t, func(c *assert.CollectT) { require.Equal(c, 1, storedUsage(t, dsn, t.Name()).Requests) })
}

// The limits of keys are spread over the masters of a cluster, of which the URL names
// two.
func TestRedis_Cluster(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3)
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	url := "redis+cluster://" + nodes[0].Addr() + "?addr=" + nodes[1].Addr()
	p := startCopy(t, dsn, url, startUpstream(t, 0), "-redis-timeout", "10s")
	p.awaitReply(t, "/readyz", "ok")
	used := func(s *servertest.Server) bool {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer c.Close()
		return c.DBSize(t.Context()).Val() > 1 // besides what the health check needs
	}
	for slices.ContainsFunc(nodes, func(s *servertest.Server) bool { return !used(s) }) {
		requireLimit(t, p, createKey(t, dsn, "--requests", "3/365d", "--tokens", "100000/365d", "--concurrent", "2"), 3)
	}
	assert.NotContains(t, p.Output.String(), nodes[0].Addr())
}

// requireLimit requires that a key is admitted n times.
func requireLimit(t *testing.T, p *process, k key, n int) {
	t.Helper()
	for range n {
		client{p.url, k.Secret}.mustChat(t, 1)
	}
	status, reply := client{p.url, k.Secret}.chat(t)
	require.Equal(t, 429, status, reply)
}

// After the master has died, the copy uses the replica that the Sentinel promotes.
func TestRedis_Sentinel(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t, servertest.Args("--requirepass", "redis-secret", "--masterauth", "redis-secret"))
	host, port, _ := strings.Cut(master.Addr(), ":")
	servertest.Redis(t, servertest.Args("--requirepass", "redis-secret", "--masterauth", "redis-secret", "--replicaof", host, port))
	sentinel := servertest.Sentinel(t, master, "redis-secret")
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	p := startCopy(t, dsn, strings.Replace(sentinel.DSN(), "://", "://:redis-secret@", 1), startUpstream(t, 0), "-redis-timeout", "10s")
	requireLimit(t, p, createKey(t, dsn, "--requests", "3/365d"), 3)
	p.awaitReply(t, "/readyz", "ok")
	master.Kill(t)
	p.awaitReply(t, "/readyz", "ok\nlimits: failing")
	p.awaitReply(t, "/readyz", "ok")
	requireLimit(t, p, createKey(t, dsn, "--requests", "2/365d"), 2)
	assert.NotContains(t, p.Output.String(), "redis-secret")
}
