package console_test

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

const (
	adminName     = "ada"
	adminPassword = "correct horse battery staple"
)

// adminHash is a hash of adminPassword with few iterations, so that tests with many attempts
// to sign in do not take minutes.
var adminHash = sync.OnceValue(func() string { return quickHash(adminPassword) })

func quickHash(password string) string {
	const iterations = 10_000 // the fewest that the console accepts
	salt := make([]byte, 16)
	sum, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		panic(err)
	}
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$pbkdf2-sha256$i=%d$%s$%s", iterations, encode(salt), encode(sum))
}

// A host is a server with the API and the console.
type host struct {
	URL     string // of the server
	keys    manage.KeyManager
	usage   llmhttp.UsageStore
	backend *modeltest.Backend // nil if newHostWithBackend was called with another
	monitor *console.Monitor
	log     *logBuffer

	mu    sync.Mutex // guards audit
	audit []console.AuditEntry
}

// A logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newHost starts a host with stores in memory, in which adminName can sign in, and
// people with keys. configure changes the options; it may be nil.
func newHost(t testing.TB, configure func(*host, *console.Options)) *host {
	t.Helper()
	return newHostWithStores(t, memory.NewKeyStore(), memory.NewUsageStore(), configure)
}

// newHostWithStores is newHost with other stores.
func newHostWithStores(t testing.TB, keys manage.KeyManager, usage llmhttp.UsageStore, configure func(*host, *console.Options)) *host {
	t.Helper()
	echo := modeltest.New()
	h := newHostWithBackend(t, keys, usage, echo, configure)
	h.backend = echo
	return h
}

// newHostWithBackend starts a host with a Backend other than that of package modeltest.
func newHostWithBackend(t testing.TB, keys manage.KeyManager, usage llmhttp.UsageStore, backend llmhttp.Backend, configure func(*host, *console.Options)) *host {
	t.Helper()
	h := &host{keys: keys, usage: usage, monitor: console.NewMonitor(), log: &logBuffer{}}
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	limiter := llmhttp.NewLimiter()
	api := llmhttp.NewHandler(backend, console.NewKeyStore(keys), &llmhttp.Options{
		Usage: usage, Limiter: limiter, Price: testPrice, Observe: h.monitor.Observe, Logger: logger, Estimates: llmhttp.TokenEstimates{TextTokens: modeltest.CountTokens},
	})
	opts := &console.Options{
		SignIn: &console.SignIn{Admins: map[string]string{adminName: adminHash()}, Keys: true},
		Usage:  usage, Limiter: limiter, API: api, Monitor: h.monitor, Logger: logger,
		Audit: func(_ context.Context, e console.AuditEntry) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.audit = append(h.audit, e)
		},
	}
	if configure != nil {
		configure(h, opts)
	}
	c, err := console.New(keys, opts)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/console/", c)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// auditLog returns what people did, as "USER: ACTION".
func (h *host) auditLog() (entries []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.audit {
		entries = append(entries, fmt.Sprintf("%s: %s", e.User, e.Action))
	}
	return entries
}

// testPrice costs 1 for a million tokens of a prompt, 4 for a million of a completion, and 0.04
// for an image.
func testPrice(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	return llmhttp.Cost{
		Input:  llm.MoneyUnit.Scale(r.Units.PromptTokens, 1_000_000),
		Output: llm.MoneyUnit.Scale(4*r.Units.CompletionTokens, 1_000_000) + llm.MoneyUnit.Scale(4*r.Units.Images, 100),
	}, nil
}

// mustCreate creates a key and returns its secret too.
func (h *host) mustCreate(t testing.TB, p manage.KeyParams) (manage.KeyInfo, string) {
	t.Helper()
	info, secret, err := h.keys.CreateKey(t.Context(), p)
	require.NoError(t, err)
	return info, secret
}

// mustRecord records usage in the store of the host.
func (h *host) mustRecord(t testing.TB, records ...llmhttp.UsageRecord) {
	t.Helper()
	require.NoError(t, h.usage.Record(t.Context(), records...))
}

// A visitor is a browser without scripts.
type visitor struct {
	t      testing.TB
	h      *host
	client *http.Client
	header http.Header // sent with each request
}

func (h *host) newVisitor(t testing.TB) *visitor {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &visitor{t: t, h: h, client: &http.Client{Jar: jar}, header: make(http.Header)}
}

// newAdmin returns a visitor who has signed in with the password.
func (h *host) newAdmin(t testing.TB) *visitor {
	v := h.newVisitor(t)
	reply := v.post("sign-in", url.Values{"name": {adminName}, "password": {adminPassword}})
	require.Equal(t, http.StatusOK, reply.status)
	return v
}

// newOwner returns a visitor who has signed in with an API key.
func (h *host) newOwner(t testing.TB, secret string) *visitor {
	v := h.newVisitor(t)
	reply := v.post("sign-in", url.Values{"key": {secret}})
	require.Equal(t, http.StatusOK, reply.status)
	return v
}

// A reply is what a visitor gets after redirects.
type reply struct {
	status int
	url    *url.URL
	header http.Header
	body   string
}

func (v *visitor) get(path string) *reply { return v.do(http.MethodGet, path, nil) }

func (v *visitor) post(path string, form url.Values) *reply {
	return v.do(http.MethodPost, path, form)
}

func (v *visitor) do(method, path string, form url.Values) *reply {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.h.URL+"/console/"+path, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	for name, values := range v.header {
		r.Header[name] = values
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := v.client.Do(r)
	require.NoError(v.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(v.t, err)
	return &reply{response.StatusCode, response.Request.URL, response.Header, string(body)}
}

// nonce returns the nonce of the form on a page.
func (v *visitor) nonce(path string) string {
	v.t.Helper()
	return findPart(v.t, v.get(path).body, `name="nonce" value="`, `"`)
}

// secretIn returns the secret that a page shows.
func secretIn(t testing.TB, body string) string {
	t.Helper()
	return findPart(t, body, `<input id="secret" value="`, `"`)
}

// findPart returns the text between before and after in a page.
func findPart(t testing.TB, body, before, after string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, before)
	require.True(t, ok, "%s in %s", before, body)
	part, _, ok := strings.Cut(rest, after)
	require.True(t, ok, "%s in %s", after, rest)
	return part
}

// chat calls the API as a client does and returns the status.
func (h *host) chat(t testing.TB, secret string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/v1/chat/completions", strings.NewReader(chatBody))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

const chatBody = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello there!"}]}`

// openAI calls the API with OpenAI's client for Node.js, which scripts/setup.sh
// installs, and returns the reply.
func (h *host) openAI(t testing.TB, secret string) string {
	t.Helper()
	tier.Needs(t, "Node.js")
	require.FileExists(t, nodePath, "make test installs it")
	cmd := exec.CommandContext(t.Context(), nodePath, "--input-type=module", "-e", `
		import OpenAI from "openai";
		const reply = await new OpenAI().chat.completions.create({ model: "demo-chat", messages: [{ role: "user", content: "Hello there!" }] });
		process.stdout.write(reply.choices[0].message.content);`)
	cmd.Dir = filepath.Join("..", "clients", "node")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+h.URL+"/v1", "OPENAI_API_KEY="+secret)
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// nodePath is the program that scripts/setup.sh installs.
var nodePath, _ = filepath.Abs(filepath.Join("..", "clients", "node", "node_modules", ".bin", "node"))

// record returns a record of a chat with a prompt of the given number of tokens, and a
// reply of a fourth of it.
func record(id string, at time.Time, account, key, model string, tokens int) llmhttp.UsageRecord {
	r := llmhttp.UsageRecord{
		ID: id, Time: at, Account: account, KeyID: key, Model: model, Operation: llmhttp.OperationChat,
		Units: llmhttp.UnitsOf(llm.Usage{
			PromptTokens: tokens, CompletionTokens: tokens / 4,
			PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: tokens / 2},
			CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: tokens / 10},
		}),
	}
	r.Cost, _ = testPrice(&r)
	return r
}

// today returns the beginning of the day in UTC.
func today() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// eventually waits for a condition with a generous limit.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 10*time.Millisecond, what)
}
