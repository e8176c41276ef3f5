package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const responsesPath, messagesPath = "/v1/responses", "/v1/messages"

// A responseBody is a reply of the Responses API.
type responseBody struct {
	ID     string
	Store  bool
	Status string
	Output []json.RawMessage
}

// respond sends a request for a response, which must succeed.
func (c client) respond(t *testing.T, body string) (r responseBody) {
	t.Helper()
	status, reply := c.send(t, "POST", responsesPath, body)
	require.Equal(t, 200, status, reply)
	require.NoError(t, json.Unmarshal([]byte(reply), &r))
	return r
}

const messageBody = `{"model": "demo-chat", "max_tokens": 9, "messages": [{"role": "user", "content": "word"}]}`

// openStore makes the tables of a database. It deletes no records.
func openStore(t *testing.T, dsn string) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), dsn, &sqlstore.Options{KeepRecords: -1})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// A response that one copy has stored can be continued at the other.
func TestProtocols_Fleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	k := createKey(t, f.dsn)
	first, second := client{f.first.url, k.Secret}, client{f.second.url, k.Secret}
	status, reply := first.send(t, "POST", messagesPath, messageBody)
	assert.Equal(t, 200, status, reply)

	r := first.respond(t, `{"model": "demo-chat", "input": "word one"}`)
	assert.True(t, r.Store)
	status, reply = second.send(t, "GET", responsesPath+"/"+r.ID, "")
	assert.Equal(t, 200, status, reply)
	next := second.respond(t, `{"model": "demo-chat", "input": "word two", "previous_response_id": "`+r.ID+`"}`)
	assert.Equal(t, "completed", next.Status)
	status, reply = first.send(t, "DELETE", responsesPath+"/"+r.ID, "")
	assert.Equal(t, 200, status, reply)
}

func TestProtocols_Off(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	models := startUpstream(t, 0)
	openStore(t, dsn)
	k := createKey(t, dsn)
	off := client{startCopy(t, dsn, "", models, "-messages=false", "-responses=false").url, k.Secret}
	for _, path := range []string{messagesPath, responsesPath} {
		status, reply := off.send(t, "POST", path, messageBody)
		assert.Equal(t, 404, status, reply)
	}
	status, reply := probe(off.url + "/readyz")
	assert.Equal(t, 200, status, reply)

	stateless := client{startCopy(t, dsn, "", models, "-store-responses=false").url, k.Secret}
	r := stateless.respond(t, `{"model": "demo-chat", "input": "word"}`)
	assert.False(t, r.Store)
	status, reply = stateless.send(t, "GET", responsesPath+"/"+r.ID, "")
	assert.Equal(t, 404, status, reply)
}

// Reasoning that one copy has encrypted reaches the model through another one with the same
// secret, and only through that.
func TestProtocols_Secret(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	models := startRecorder(t, startUpstream(t, 0))
	openStore(t, dsn)
	k := createKey(t, dsn)
	secret := strings.Repeat("secret-of-tests-", 3)
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	startWith := func(env string, args ...string) client {
		cmd := newCommand([]string{
			"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=", "LLMHTTP_UPSTREAM=models=" + models.url + "/v1", "LLMHTTP_KEY_MODELS=" + upstreamKey,
			"LLMHTTP_RESPONSES_SECRET=" + env,
		}, args...)
		p := start(t, cmd)
		t.Cleanup(func() { assert.NotContains(t, p.Output.String(), secret) })
		return client{p.url, k.Secret}
	}
	first, second, other := startWith(secret), startWith("", "-responses-secret-file", file), startWith("")
	r := first.respond(t, `{"model": "demo-chat", "input": "word", "store": false, "reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]}`)
	require.Contains(t, string(r.Output[0]), `"encrypted_content":`)
	forwarded := func(c client) string {
		c.respond(t, fmt.Sprintf(`{"model": "demo-chat", "store": false, "input": [%s, %s, {"role": "user", "content": "word"}]}`, r.Output[0], r.Output[1]))
		return models.last()
	}
	assert.Contains(t, forwarded(first), `"reasoning_details":`)
	assert.Equal(t, forwarded(first), forwarded(second))
	assert.NotContains(t, forwarded(other), `"reasoning_details":`)
}

// A recorder is a proxy in front of an upstream that keeps the body of the last request.
type recorder struct {
	url  string
	body atomic.Pointer[[]byte]
}

func startRecorder(t *testing.T, upstream *process) *recorder {
	target, err := url.Parse(upstream.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	rec := new(recorder)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		rec.body.Store(&body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	rec.url = server.URL
	return rec
}

func (rec *recorder) last() string { return string(*rec.body.Load()) }

// Responses and records that are older than the flags say are deleted. Sums stay.
func TestRetention(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t, servertest.SharedPostgres(t))
	models := startUpstream(t, 0)
	store := openStore(t, dsn)
	k := createKey(t, dsn)
	require.NoError(t, store.Record(t.Context(), llmhttp.UsageRecord{
		ID: "old", Account: t.Name(), KeyID: k.ID, Model: "demo-chat", Operation: llmhttp.OperationChat, Time: time.Now().Add(-72 * time.Hour),
	}))
	rows := func(t require.TestingT) (records, responses int) {
		conn, err := pgx.Connect(context.Background(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		require.NoError(t, conn.QueryRow(context.Background(), "SELECT (SELECT count(*) FROM llmhttp_usage_records), (SELECT count(*) FROM llmhttp_responses)").Scan(&records, &responses))
		return records, responses
	}

	keep := startCopy(t, dsn, "", models, "-keep-usage", "-1s", "-keep-responses", "1ns")
	c := client{keep.url, k.Secret}
	r := c.respond(t, `{"model": "demo-chat", "input": "word"}`)
	status, reply := c.send(t, "GET", responsesPath+"/"+r.ID, "")
	assert.Equal(t, 404, status, reply)
	keep.stop(t)
	records, responses := rows(t)
	assert.Equal(t, []int{2, 1}, []int{records, responses})

	startCopy(t, dsn, "", models, "-keep-usage", "24h")
	eventually(t, func(c *assert.CollectT) {
		records, responses := rows(c)
		require.Equal(c, []int{1, 0}, []int{records, responses})
	})
	assert.Equal(t, 2, storedUsage(t, dsn, t.Name()).Requests)
}
