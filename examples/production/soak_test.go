package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

var (
	soakTime     = flag.Duration("soak", 0, "how long TestSoak runs; each fault happens at least once")
	soakInterval = flag.Duration("soak-interval", 200*time.Millisecond, "how long a fault of TestSoak lasts, and the time between faults")
)

// A soak is a fleet of two copies with two upstreams, under the load of tenants.
type soak struct {
	t        *testing.T
	dsn      string
	postgres *servertest.Server
	redis    *servertest.Server
	metrics  [2]string // addresses on which copies serve their metrics
	watch    *metricsServer
	upstream *process // the first one
	second   string   // the URL of the other, which this process serves
	port     string   // of upstream
	tenants  []key

	mu     sync.Mutex // guards the fields below
	copies [2]*process
	killed map[*process]time.Time
	fault  string
	served map[string]servedRequest // by request ID
	failed []failedRequest
	counts map[string]map[string]int
}

// A servedRequest is a request that a tenant got a complete reply to.
type servedRequest struct {
	by *process
	at time.Time
}

// A failedRequest is a request that a tenant got no complete reply to.
type failedRequest struct {
	by             *process
	fault, outcome string
}

const copyKilled, upstreamKilled = "kill -9 of a copy", "kill -9 of an upstream"

// alertNotReady is the alert about processes that are not ready or dead, alertCheck that about what they need.
const alertNotReady, alertCheck = "LLMNotReady", "LLMCheckFailing"

// slack is how long a copy on a busy machine may take to store usage.
const slack = 5 * time.Second

// TestSoak lets faults happen one after another while tenants send requests. Faults that
// operators are to be told of make an alert fire, until they end. Then it compares what
// was lost with what docs/production.md promises.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	for _, args := range [][]string{nil, {"--quota", "1000000000/month"}, {"--requests", "1000000/m", "--concurrent", "100"}, {"--tokens", "100000000/m"}} {
		s.tenants = append(s.tenants, createKey(t, s.dsn, args...))
	}
	for _, p := range s.copies {
		s.cacheKeys(p)
	}
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	for i, k := range s.tenants {
		sending.Go(func() { s.send(ctx, k.Secret, i%2 == 0) })
	}
	faults := []struct {
		name             string
		begin            func()
		end              func()
		alert, of, count string // the alert that fires during the fault, and what its summary says; may be empty
	}{
		{copyKilled, s.killCopy, s.restartCopy, alertNotReady, "not ready for requests, or do not answer", "1 processes"},
		{"kill -9 of PostgreSQL", func() { s.postgres.Kill(t) }, func() { s.postgres.Start(t) }, alertCheck, "the check keys", "2 processes"},
		{"kill -9 of Redis", func() { s.redis.Kill(t) }, func() { s.redis.Start(t) }, alertCheck, "the check limits", "2 processes"},
		{upstreamKilled, func() { s.upstream.Cmd.Process.Kill(); s.upstream.Wait(t) }, s.startUpstream, "", "", ""},
		{"slow bodies", s.slowBodies, func() {}, "", "", ""},
		{"attack on the breaker", s.attack, func() {}, "", "", ""},
	}
	for start := time.Now(); ; {
		for _, f := range faults {
			s.awaitLoad("", *soakInterval)
			s.setFault(f.name)
			f.begin()
			s.awaitLoad(f.name, *soakInterval)
			if f.alert != "" {
				s.watch.awaitAlert(t, f.alert, f.of, f.count)
			}
			f.end()
			s.setFault("")
			if f.alert != "" {
				s.watch.awaitNoAlert(t, f.alert, f.of)
			}
		}
		if time.Since(start) >= *soakTime {
			break
		}
	}
	s.awaitLoad("", *soakInterval)
	stop()
	sending.Wait()
	for _, p := range s.copies {
		p.stop(t)
	}
	s.watch.awaitAlert(t, alertNotReady, "2 processes")
	s.report()
}

func newSoak(t *testing.T) *soak {
	s := &soak{
		t: t, port: freePort(t), killed: make(map[*process]time.Time),
		postgres: servertest.Postgres(t), redis: servertest.Redis(t),
		served: make(map[string]servedRequest), counts: make(map[string]map[string]int),
	}
	s.dsn = newDatabase(t, s.postgres)
	echo := memory.Echo()
	other := httptest.NewServer(llmhttp.NewHandler(llmhttp.BackendFunc(func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
		if r.Model == "poison" {
			return llm.Fail(llm.Errorf(http.StatusInternalServerError, "", "poison"))
		}
		return echo.Chat(ctx, r)
	}), llmhttp.AllowAll("soak"), &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(other.Close)
	s.second = other.URL
	s.startUpstream()
	for i := range s.copies {
		s.metrics[i] = "127.0.0.1:" + freePort(t)
		s.copies[i] = s.startCopy(s.metrics[i])
	}
	s.watch = startPrometheus(t, s.metrics[:]...)
	eventually(t, func(c *assert.CollectT) { // a process that was never scraped is not missed
		require.Equal(c, map[string]float64{"": 2}, s.watch.query(c, "sum(llmhttp:up)"))
	})
	return s
}

func (s *soak) startUpstream() {
	s.upstream = start(s.t, exec.Command(inmemory, "-addr", "127.0.0.1:"+s.port, "-key", upstreamKey, "-delay", "2ms"))
}

func (s *soak) startCopy(metrics string) *process {
	return startCopy(s.t, s.dsn, s.redis.DSN(), s.upstream, "-metrics", metrics, "-redis-fallback", "-usage-delay", "100ms", "-key-grace", "10m",
		"-upstream", "models="+s.upstream.url+"/v1 second="+s.second+"/v1")
}

func (s *soak) killCopy() {
	s.mu.Lock()
	p := s.copies[0]
	s.mu.Unlock()
	p.Cmd.Process.Kill()
	p.Wait(s.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed[p] = time.Now()
}

// restartCopy starts a copy, and puts it under load when it has cached the keys: it
// cannot serve others while the database is unavailable.
func (s *soak) restartCopy() {
	p := s.startCopy(s.copies[0].metricsAddr(s.t)) // copies is written by this goroutine alone
	s.cacheKeys(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies[0] = s.copies[1]
	s.copies[1] = p
}

func (s *soak) cacheKeys(p *process) {
	for _, k := range s.tenants {
		client{p.url, k.Secret}.mustChat(s.t, 1)
	}
}

// slowBodies sends the beginnings of requests of a tenant, which stay open.
func (s *soak) slowBodies() {
	k := createKey(s.t, s.dsn, "--name", "slow")
	for _, p := range s.copies {
		for range 20 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			require.NoError(s.t, err)
			s.t.Cleanup(func() { conn.Close() })
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", chatPath, k.Secret)
		}
	}
}

// attack sends requests of a tenant for a model that fails on an upstream.
func (s *soak) attack() {
	k := createKey(s.t, s.dsn, "--name", "attacker")
	for range 50 {
		for _, p := range s.copies {
			status, reply := client{p.url, k.Secret}.send(s.t, "POST", chatPath, strings.Replace(chatBody(false, 1), "demo-chat", "poison", 1))
			assert.GreaterOrEqual(s.t, status, 400, reply)
		}
	}
}

func (s *soak) setFault(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = name
}

// awaitLoad waits for d and until tenants have got replies during the fault.
func (s *soak) awaitLoad(fault string, d time.Duration) {
	before := s.count(fault, "ok")
	time.Sleep(d)
	eventually(s.t, func(c *assert.CollectT) { require.GreaterOrEqual(c, s.count(fault, "ok"), before+20) })
}

func (s *soak) count(fault, outcome string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[fault][outcome]
}

// send sends requests of a tenant until ctx is done.
func (s *soak) send(ctx context.Context, secret string, stream bool) {
	for n := 0; ctx.Err() == nil; n++ {
		s.mu.Lock()
		p := s.copies[n%2]
		if _, dead := s.killed[p]; dead { // as a load balancer does
			p = s.copies[(n+1)%2]
		}
		fault := s.fault
		s.mu.Unlock()
		id, outcome := s.chat(client{p.url, secret}, stream)
		s.mu.Lock()
		if s.fault != "" {
			fault = s.fault // it may have begun meanwhile
		}
		if outcome == "" {
			s.served[id] = servedRequest{p, time.Now()}
			s.add(fault, "ok")
		} else {
			s.failed = append(s.failed, failedRequest{p, fault, outcome})
		}
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// add counts an outcome. It is called with mu held.
func (s *soak) add(fault, outcome string) {
	if s.counts[fault] == nil {
		s.counts[fault] = make(map[string]int)
	}
	s.counts[fault][outcome]++
}

// chat sends a chat. The outcome is "" if the reply is complete.
func (s *soak) chat(c client, stream bool) (id, outcome string) {
	const words = 20
	req, err := http.NewRequest("POST", c.url+chatPath, strings.NewReader(chatBody(stream, words)))
	if err != nil {
		return "", err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "no reply"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", "interrupted"
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Sprint(resp.StatusCode)
	case stream && !strings.HasSuffix(string(text), "data: [DONE]\n\n"), strings.Count(string(text), "word") != words:
		return "", "incomplete"
	}
	return resp.Header.Get("X-Request-Id"), ""
}

// report prints what was lost, and fails the test if that is more than is promised.
func (s *soak) report() {
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	require.NoError(s.t, err)
	defer conn.Close(s.t.Context())
	rows, err := conn.Query(s.t.Context(), "SELECT id FROM llmhttp_usage_records")
	require.NoError(s.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	stored := make(map[string]bool)
	for _, id := range ids {
		stored[id] = true
	}
	lost, atRisk, unexpected := 0, 0, 0
	for id, r := range s.served {
		killed, dead := s.killed[r.by]
		risk := dead && killed.Sub(r.at) < slack
		if risk {
			atRisk++
		}
		if !stored[id] {
			lost++
			if !risk {
				unexpected++
			}
		}
	}
	for _, f := range s.failed {
		if _, dead := s.killed[f.by]; dead && f.fault == copyKilled && (f.outcome == "no reply" || f.outcome == "interrupted") {
			f.outcome = "copy killed"
		}
		s.add(f.fault, f.outcome)
	}
	for _, fault := range slices.Sorted(maps.Keys(s.counts)) {
		name := fault
		if name == "" {
			name = "no fault"
		}
		s.t.Logf("%-24s %v", name+":", s.counts[fault])
		for outcome, n := range s.counts[fault] {
			allowed := outcome == "ok" || fault == copyKilled && outcome == "copy killed" || fault == upstreamKilled && outcome == "interrupted"
			assert.True(s.t, allowed, "%s: %d requests of other tenants: %s", name, n, outcome)
		}
	}
	s.t.Logf("usage: %d requests served, %d of their records lost; promised: at most the %d that a copy served shortly before it was killed (%d times)",
		len(s.served), lost, atRisk, len(s.killed))
	assert.Zero(s.t, unexpected, "lost records that no kill of a copy explains")
}
