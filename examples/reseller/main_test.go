package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

// A client sends requests to the example.
type client struct {
	t    *testing.T
	base string
}

// do sends a request with a key and returns the status and the body of the reply.
func (c client) do(method, path, key, body string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	return res.StatusCode, string(text)
}

// chat asks a model on behalf of an end user.
func (c client) chat(key, model, user string) (int, string) {
	c.t.Helper()
	return c.do("POST", "/v1/chat/completions", key,
		`{"model": "`+model+`", "user": "`+user+`", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}`)
}

// start runs the example in front of srv, with the tenants of tenants.json as change leaves them. The function
// that it returns stops it.
func start(t *testing.T, srv *llmfake.Server, db string, change func(map[string]*tenant)) (client, func()) {
	t.Helper()
	text, err := os.ReadFile("tenants.json")
	require.NoError(t, err)
	var tenants map[string]*tenant
	require.NoError(t, json.Unmarshal(text, &tenants))
	change(tenants)
	text, err = json.Marshal(tenants)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tenants.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, l, srv.OpenAIURL(), file, db) }()
	stop := func() {
		cancel()
		assert.NoError(t, <-ended)
	}
	return client{t, "http://" + l.Addr().String()}, stop
}

// newServer returns the server of the two models, and sets the secrets.
func newServer(t *testing.T) *llmfake.Server {
	for name, secret := range map[string]string{"ACME_KEY": "sk-acme", "BOLT_KEY": "sk-bolt", "UPSTREAM_KEY": "sk-upstream"} {
		t.Setenv(name, secret)
	}
	srv := llmfake.NewServer(t)
	srv.RequireKey("sk-upstream")
	srv.AddModels("small", "large")
	return srv
}

// billed returns the dollars that the account of a key used.
func (c client) billed(key string) float64 {
	status, body := c.do("GET", "/v1/dashboard/billing/usage", key, "")
	require.Equal(c.t, 200, status, body)
	var usage struct {
		TotalUsage float64 `json:"total_usage"` // in cents
	}
	require.NoError(c.t, json.Unmarshal([]byte(body), &usage))
	return usage.TotalUsage / 100
}

// Acme pays 1.1 times the prices. A reply of 1,000,000 tokens of the prompt and 500,000 of the
// completion of "large" costs (3 + 15 / 2) * 1.1 = $11.55, and of "small" (0.2 + 0.8 / 2) * 1.1 = $0.66.
func TestReseller(t *testing.T) {
	srv := newServer(t)
	srv.Always(llmfake.Text("Hello").Usage(1_000_000, 500_000))
	var tries atomic.Int32
	calls := make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if tries.Add(1) == 1 { // the first call fails
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		calls <- string(body)
	}))
	defer hook.Close()
	db := filepath.Join(t.TempDir(), "usage.db")
	change := func(tenants map[string]*tenant) { tenants["acme"].Webhook = hook.URL }
	c, stop := start(t, srv, db, change)

	// Names of models are the tenant's own: in requests, replies and the list.
	for _, tc := range []struct {
		key, model string
		status     int
		served     string
	}{
		{"sk-acme", "acme-fast", 200, "small"},
		{"sk-acme", "acme-best", 200, "large"},
		{"sk-bolt", "assistant", 200, "large"},
		{"sk-acme", "assistant", 404, ""},
		{"sk-acme", "large", 404, ""},
		{"sk-bolt", "acme-best", 404, ""},
		{"sk-eve", "large", 401, ""},
	} {
		n := len(srv.Requests())
		status, body := c.chat(tc.key, tc.model, "ann")
		assert.Equal(t, tc.status, status, "%s %s: %s", tc.key, tc.model, body)
		if tc.status != 200 {
			assert.Len(t, srv.Requests(), n)
			continue
		}
		assert.Contains(t, body, `"model":"`+tc.model+`"`)
		assert.Equal(t, tc.served, srv.Request(n).Model)
	}
	_, models := c.do("GET", "/v1/models", "sk-acme", "")
	assert.Contains(t, models, `"acme-fast"`)
	assert.Contains(t, models, `"acme-best"`)
	assert.NotContains(t, models, `"assistant"`)
	assert.NotContains(t, models, `"large"`)
	assert.InDelta(t, 12.21, c.billed("sk-acme"), 1e-9)
	assert.InDelta(t, 9.45, c.billed("sk-bolt"), 1e-9, "bolt pays 0.9 times the prices")

	// At $35.31 of 50 nobody is told; at 46.86 the webhook is called until it answers, and not again.
	for range 2 {
		status, body := c.chat("sk-acme", "acme-best", "ann")
		require.Equal(t, 200, status, body)
	}
	assert.Empty(t, calls)
	status, _ := c.chat("sk-acme", "acme-best", "ann")
	require.Equal(t, 200, status)
	month := time.Now().UTC().Format("2006-01")
	first := <-calls
	assert.Regexp(t, `^{"budget":"50","id":"quota_\w+","month":"`+month+`","tenant":"acme","used":"46.86"}$`, first)
	assert.Equal(t, first, <-calls)

	// The last request may overrun the budget by what is not reserved; then it is at its end, for all
	// users of acme and for nobody else, also after a restart.
	status, _ = c.chat("sk-acme", "acme-best", "ann")
	require.Equal(t, 200, status)
	for range 2 {
		status, body := c.chat("sk-acme", "acme-fast", "bob")
		assert.Equal(t, 429, status, body)
		assert.Contains(t, body, `"code":"insufficient_quota"`)
		status, body = c.chat("sk-bolt", "assistant", "ann")
		assert.Equal(t, 200, status, body)
		stop()
		c, stop = start(t, srv, db, change)
	}
	assert.InDelta(t, 58.41, c.billed("sk-acme"), 1e-9)
	stop()
	assert.Empty(t, calls)
}

func TestReseller_EndUsers(t *testing.T) {
	srv := newServer(t)
	srv.Always(llmfake.Text("Hello"))
	c, stop := start(t, srv, ":memory:", func(tenants map[string]*tenant) {
		tenants["acme"].UserRequests, tenants["bolt"].UserRequests = 3, 3
	})
	defer stop()
	for range 3 {
		status, body := c.chat("sk-acme", "acme-fast", "ann")
		require.Equal(t, 200, status, body)
	}
	status, body := c.chat("sk-acme", "acme-best", "ann")
	assert.Equal(t, 429, status)
	assert.Contains(t, body, `"code":"rate_limit_exceeded"`)
	for _, other := range [][2]string{{"sk-acme", "bob"}, {"sk-bolt", "ann"}} {
		model := map[string]string{"sk-acme": "acme-fast", "sk-bolt": "assistant"}[other[0]]
		status, body := c.chat(other[0], model, other[1])
		assert.Equal(t, 200, status, body)
	}
}

// The model gets the instructions of the tenant and not what is to be hidden from it, and the log only the texts of
// those who want it.
func TestReseller_Texts(t *testing.T) {
	var logs lockedBuffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	srv := newServer(t)
	c, stop := start(t, srv, ":memory:", func(all map[string]*tenant) {
		acme := all["acme"]
		acme.Instructions, acme.Hide, acme.LogTexts = "Be brief.", []string{"Ada Lovelace", "Hi"}, true
	})
	defer stop()
	srv.Always(llmfake.Func(func(r *llmfake.Request) llmfake.Reply { return llmfake.Text("You said " + r.UserText()) }))

	status, body := c.chat("sk-acme", "acme-best", "ann")
	require.Equal(t, 200, status, body)
	assert.Contains(t, body, "You said Hi")
	assert.Equal(t, "[2]", srv.Request(0).UserText())
	assert.Contains(t, srv.Request(0).System(), "Be brief.")
	status, body = c.chat("sk-bolt", "assistant", "bob")
	require.Equal(t, 200, status, body)
	assert.Equal(t, "Hi", srv.Request(1).UserText())
	assert.Empty(t, srv.Request(1).System())
	assert.Equal(t, 1, strings.Count(logs.String(), "msg=texts"), logs.String())

	status, body = c.do("GET", "/usage.csv", "sk-acme", "")
	require.Equal(t, 200, status, body)
	assert.Regexp(t, `(?m)^\d{4}-\d\d-\d\d,acme-best,1,[1-9]\d*,0\.\d+$`, body)
	assert.NotContains(t, body, "assistant")
	status, _ = c.do("GET", "/usage.csv", "sk-eve", "")
	assert.Equal(t, 401, status)
}

// A tenant chooses the names of its models. Spreadsheets must not take them for formulas.
func TestReseller_UsageHasNoFormulas(t *testing.T) {
	srv := newServer(t)
	srv.Always(llmfake.Text("Hello"))
	cells := map[string]string{"a=1": "a=1"} // by the names of models
	for _, s := range []string{"=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"} {
		cells[s+"1"] = "'" + s + "1"
	}
	c, stop := start(t, srv, ":memory:", func(all map[string]*tenant) {
		all["acme"].UserRequests = len(cells)
		all["acme"].Models = make(map[string]string)
		for model := range cells {
			all["acme"].Models[model] = "small"
		}
	})
	defer stop()
	for model := range cells {
		status, body := c.chat("sk-acme", model, "ann")
		require.Equal(t, 200, status, body)
	}
	_, body := c.do("GET", "/usage.csv", "sk-acme", "")
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	require.NoError(t, err)
	var models []string
	for _, row := range rows[1:] {
		models = append(models, row[1])
	}
	assert.ElementsMatch(t, slices.Collect(maps.Values(cells)), models)
	assert.Equal(t, "'\t=1", spreadsheetText("\t=1"))
}

// A lockedBuffer is a buffer of logs.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestRun_Mistakes(t *testing.T) {
	srv := newServer(t)
	for _, tc := range []struct {
		name   string
		change func(*tenant)
		want   string
	}{
		{"no budget", func(a *tenant) { a.Budget = 0 }, "tenant acme"},
		{"a negative budget", func(a *tenant) { a.Budget = -llm.MoneyUnit }, "tenant acme"},
		{"no limit for end users", func(a *tenant) { a.UserRequests = 0 }, "tenant acme"},
		{"a model without a price", func(a *tenant) { a.Models = map[string]string{"acme-best": "huge"} }, "acme-best"},
		{"no secret", func(a *tenant) { a.SecretEnv = "NOBODYS_KEY" }, "NOBODYS_KEY"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &tenant{SecretEnv: "ACME_KEY", Budget: llm.MoneyUnit, UserRequests: 1}
			tc.change(a)
			text, err := json.Marshal(map[string]*tenant{"acme": a})
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "tenants.json")
			require.NoError(t, os.WriteFile(file, text, 0o600))
			assert.ErrorContains(t, run(t.Context(), nil, srv.OpenAIURL(), file, ":memory:"), tc.want)
		})
	}
	assert.Error(t, run(t.Context(), nil, srv.OpenAIURL(), "nonesuch.json", ":memory:"))
}
