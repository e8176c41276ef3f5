package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llm"
)

// What each reply of the upstream of TestSoakLimits uses, and what that costs with soakPrices.
const (
	soakPrompt, soakCompletion = 3, 7
	soakTokens                 = soakPrompt + soakCompletion
	soakPrices                 = `{"models": {"demo-chat": {"input": 1000, "output": 2000}}}` // dollars per million tokens
	soakCost                   = (soakPrompt*1000 + soakCompletion*2000) * llm.MoneyUnit / 1e6
)

// An upstreamCall is a request that the upstream has answered or began to answer.
type upstreamCall struct {
	id, user, copy string
	began          time.Time
}

// A countingUpstream is a server of models that keeps a log of its calls: what somebody
// would be billed for.
type countingUpstream struct {
	mu      sync.Mutex // guards the fields below
	calls   []upstreamCall
	running map[string]int // by user
	most    map[string]int // the most calls of a user at a time
}

// ServeHTTP serves the requests of a copy, whose name begins the path.
func (u *countingUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		io.WriteString(w, `{"object":"list","data":[{"id":"demo-chat","object":"model","created":1,"owned_by":"soak"}]}`)
		return
	}
	var req struct{ User string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	u.begin(upstreamCall{r.Header.Get("X-Request-Id"), req.User, name, time.Now()})
	defer u.end(req.User)
	time.Sleep(3 * time.Millisecond)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"demo-chat","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},`+
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, soakPrompt, soakCompletion, soakTokens)
}

func (u *countingUpstream) begin(c upstreamCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, c)
	u.running[c.user]++
	u.most[c.user] = max(u.most[c.user], u.running[c.user])
}

func (u *countingUpstream) end(user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running[user]--
}

// A soakAccount is an account of TestSoakLimits, with two keys.
type soakAccount struct {
	name  string
	flags []string // of llmhttpctl, besides the limits of end users
	// most returns how many requests of the account may have been recorded, of which the credit is a sum; 0 is
	// any number.
	most func(credit llm.Money) int
	keys []key
}

// The limits of each end user.
const (
	userBurst      = 30
	userRate       = 10 // requests a second
	userConcurrent = 2
)

// A limitsSoak is two copies on one database and one Redis, under the load of accounts that
// are at their limits.
type limitsSoak struct {
	t          *testing.T
	dsn, redis string
	prices     string // the name of a file
	upstream   *countingUpstream
	server     *httptest.Server // of upstream
	accounts   []*soakAccount
	credit     llm.Money // of the account that is prepaid

	mu       sync.Mutex // guards the fields below
	started  int        // how many copies
	copies   [2]*soakCopy
	killed   map[string]time.Time // when copies were killed, by name
	outcomes map[string]map[string]int
}

// A soakCopy is a copy of the example with a name.
type soakCopy struct {
	*process
	name string
	gone bool
}

// TestSoakLimits kills and restarts copies while 50 clients of accounts and end users are at
// their limits. Then it compares what the upstream has served with the limits, and its log with
// the database.
func TestSoakLimits(t *testing.T) {
	for name, redis := range map[string]func(t *testing.T) string{
		"Redis": func(t *testing.T) string { return servertest.Redis(t).DSN() },
		"Redis Cluster": func(t *testing.T) string {
			nodes := servertest.RedisCluster(t, 3)
			return "redis+cluster://" + nodes[0].Addr() + "?addr=" + nodes[1].Addr() + "&addr=" + nodes[2].Addr()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newLimitsSoak(t, redis(t)).run()
		})
	}
}

func newLimitsSoak(t *testing.T, redis string) *limitsSoak {
	s := &limitsSoak{
		t: t, dsn: newDatabase(t, servertest.SharedPostgres(t)), redis: redis, prices: filepath.Join(t.TempDir(), "prices.json"),
		upstream: &countingUpstream{running: make(map[string]int), most: make(map[string]int)},
		killed:   make(map[string]time.Time), outcomes: make(map[string]map[string]int), credit: llm.MoneyUnit,
	}
	require.NoError(t, os.WriteFile(s.prices, []byte(soakPrices), 0o600))
	s.server = httptest.NewServer(s.upstream)
	t.Cleanup(s.server.Close)
	for i := range s.copies { // which create the tables
		s.copies[i] = s.startCopy()
	}
	unbounded := func(llm.Money) int { return 0 }
	s.accounts = []*soakAccount{
		{name: "tokens", flags: []string{"--quota", "3000/all"}, most: func(llm.Money) int { return 3000 / soakTokens }},
		{name: "money", flags: []string{"--quota", "2usd/month"}, most: func(llm.Money) int { return int(llm.USD(2) / soakCost) }},
		{name: "prepaid", flags: []string{"--prepaid"}, most: func(credit llm.Money) int { return int(credit / soakCost) }},
		{name: "rates", flags: []string{"--requests", "40/1s", "--tokens", "300/1s"}, most: unbounded},
		{name: "users", most: unbounded},
	}
	for _, a := range s.accounts {
		flags := append([]string{"accounts", "create", a.name, "--user-requests", fmt.Sprintf("%d/1s,burst=%d", userRate, userBurst),
			"--user-concurrent", fmt.Sprint(userConcurrent)}, a.flags...)
		runCtl[map[string]any](t, s.dsn, flags...)
		for range 2 {
			a.keys = append(a.keys, runCtl[key](t, s.dsn, "keys", "create", "--account", a.name)[0])
		}
	}
	s.addCredit(s.credit)
	return s
}

func (s *limitsSoak) addCredit(amount llm.Money) {
	runCtl[map[string]any](s.t, s.dsn, "credit", "add", "prepaid", "--amount", amount.String()+"usd")
}

func (s *limitsSoak) startCopy() *soakCopy {
	s.started++
	name := fmt.Sprint("copy", s.started)
	p := startCopy(s.t, s.dsn, s.redis, &process{url: s.server.URL + "/" + name}, "-usage-delay", "100ms", "-key-ttl", "1s", "-redis-timeout", "5s", "-prices", s.prices)
	return &soakCopy{process: p, name: name}
}

func (s *limitsSoak) run() {
	began := time.Now()
	ctx, stop := context.WithCancel(s.t.Context())
	var sending sync.WaitGroup
	for i := range 50 {
		a := s.accounts[i%len(s.accounts)]
		user := fmt.Sprintf("%s-%d", a.name, i/len(s.accounts)/2) // two clients for each user
		sending.Go(func() { s.send(ctx, i, a.keys[i/len(s.accounts)%2].Secret, a.name, user) })
	}
	for first := true; first || time.Since(began) < *soakTime; first = false {
		time.Sleep(*soakInterval)
		s.restart(true)
		s.addCredit(llm.USD(0.5))
		s.credit += llm.USD(0.5)
		time.Sleep(*soakInterval)
		s.restart(false)
	}
	eventually(s.t, func(c *assert.CollectT) { // so that a short run is one at the limits too
		require.NotZero(c, s.count("money", "429 insufficient_quota"), "the account has not reached its quota")
		require.NotZero(c, s.count("users", "429 rate_limit_exceeded"), "no end user has reached a limit")
	})
	stop()
	sending.Wait()
	for _, c := range s.copies {
		c.stop(s.t)
	}
	s.report(time.Since(began))
}

func (s *limitsSoak) count(account, outcome string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[account][outcome]
}

// restart ends the older copy, by kill -9 or by SIGTERM, and starts another one.
func (s *limitsSoak) restart(kill bool) {
	s.mu.Lock()
	old := s.copies[0]
	old.gone = true // as a load balancer notices
	s.mu.Unlock()
	if kill {
		require.NoError(s.t, old.Cmd.Process.Kill())
		old.Wait(s.t)
		s.killed[old.name] = time.Now()
	} else {
		old.stop(s.t)
	}
	c := s.startCopy()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = [2]*soakCopy{s.copies[1], c}
}

// send sends chats of an end user until ctx is done.
func (s *limitsSoak) send(ctx context.Context, n int, secret, account, user string) {
	body := fmt.Sprintf(`{"model": "demo-chat", "max_tokens": %d, "user": %q, "messages": [{"role": "user", "content": "Hello there!"}]}`, soakCompletion, user)
	for ; ctx.Err() == nil; n++ {
		s.mu.Lock()
		c := s.copies[n%2]
		if c.gone {
			c = s.copies[(n+1)%2]
		}
		s.mu.Unlock()
		outcome := s.chat(client{c.url, secret}, body)
		// As SDKs do, which repeat a 503 twice: a quota that a busy machine does not read within two seconds refuses the request.
		for range 2 {
			if outcome != notChecked {
				break
			}
			outcome = s.chat(client{c.url, secret}, body)
		}
		s.mu.Lock()
		if c.gone && outcome != "200" && !strings.HasPrefix(outcome, "429") {
			outcome = "a copy ended"
		}
		if s.outcomes[account] == nil {
			s.outcomes[account] = make(map[string]int)
		}
		s.outcomes[account][outcome]++
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// notChecked is the outcome of a chat whose limits could not be read.
const notChecked = "503 We could not check your rate limits. Please try again."

// chat sends a chat. The outcome is the status and, of a refusal, its code, or its message if it has none.
func (s *limitsSoak) chat(c client, body string) string {
	req, err := http.NewRequest("POST", c.url+chatPath, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "no reply"
	}
	defer resp.Body.Close()
	var reply struct {
		Error struct{ Code, Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return "interrupted"
	}
	if resp.StatusCode == http.StatusOK {
		return "200"
	}
	return fmt.Sprint(resp.StatusCode, " ", cmp.Or(reply.Error.Code, reply.Error.Message))
}

// A soakRecord is what the database has of a request.
type soakRecord struct {
	ID, Account, User string
	Prompt, Completed int
	Cost              int64
}

// report fails the test if somebody got more than the limits allow, or if the records and
// the log of the upstream differ by more than what copies lost when they were killed.
func (s *limitsSoak) report(took time.Duration) {
	records := s.readRecords()
	calls := make(map[string]upstreamCall)
	byUser := make(map[string]int)
	for _, c := range s.upstream.calls {
		_, twice := calls[c.id]
		assert.False(s.t, twice, "the upstream was called twice")
		calls[c.id] = c
		byUser[c.user]++
	}
	byAccount := make(map[string]int)
	for id, r := range records {
		c, ok := calls[id]
		assert.True(s.t, ok, "a record of a request that the upstream does not know")
		assert.Equal(s.t, soakRecord{id, r.Account, c.user, soakPrompt, soakCompletion, int64(soakCost)}, r)
		assert.Equal(s.t, r.Account, strings.Split(c.user, "-")[0])
		byAccount[r.Account]++
	}
	lost := make(map[string]int) // by account
	for id, c := range calls {
		if _, ok := records[id]; !ok {
			lost[strings.Split(c.user, "-")[0]]++
			killed, dead := s.killed[c.copy]
			assert.True(s.t, dead && killed.Sub(c.began) < slack, "the record of a request is lost, and %s was not killed soon after it", c.copy)
		}
	}
	for _, a := range s.accounts {
		s.t.Logf("%-8s recorded %5d, lost %3d; %v", a.name, byAccount[a.name], lost[a.name], s.outcomes[a.name])
		if most := a.most(s.credit); most > 0 {
			assert.LessOrEqual(s.t, byAccount[a.name], most, a.name)
		}
		for outcome := range s.outcomes[a.name] {
			assert.Contains(s.t, []string{"200", "429 rate_limit_exceeded", "429 insufficient_quota", "a copy ended"}, outcome)
		}
	}
	most := userBurst + int(took.Seconds()*userRate) + 1
	for user, n := range byUser {
		assert.LessOrEqual(s.t, n, most, "requests of %s in %v", user, took)
		assert.LessOrEqual(s.t, s.upstream.most[user], userConcurrent, "requests of %s at a time", user)
	}
	rates := int(took.Seconds()*40) + 40 + 1
	assert.LessOrEqual(s.t, byAccount["rates"]+lost["rates"], rates)
	s.t.Logf("%d calls of the upstream in %v by %d copies, of which %d were killed: %v", len(calls), took.Round(time.Second), s.started, len(s.killed),
		slices.Sorted(maps.Keys(s.killed)))
}

func (s *limitsSoak) readRecords() map[string]soakRecord {
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	require.NoError(s.t, err)
	defer conn.Close(s.t.Context())
	rows, err := conn.Query(s.t.Context(), "SELECT request_id, account, end_user, prompt_tokens, completion_tokens, "+
		"cost_input + cost_cache_read + cost_cache_write + cost_output + cost_other FROM llmhttp_usage_records")
	require.NoError(s.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[soakRecord])
	require.NoError(s.t, err)
	records := make(map[string]soakRecord)
	for _, r := range list {
		_, twice := records[r.ID]
		assert.False(s.t, twice, "two records of a request")
		records[r.ID] = r
	}
	return records
}
