package sqlstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

func TestHandlers_ShareKeysAndUsage(t *testing.T) {
	const chatPath = "/v1/chat/completions"
	const chat = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		var stores []*Store
		var urls []string
		for range 2 {
			s := openStore(t, dsn, &Options{KeyTTL: 50 * time.Millisecond})
			server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), s, &llmhttp.Options{Usage: s, Logger: discardLogger}))
			t.Cleanup(server.Close)
			stores, urls = append(stores, s), append(urls, server.URL)
		}
		info, secret := createKey(t, stores[0], manage.KeyParams{Account: "acme"})
		send := func(method, url, body string) (status int, reply string) {
			req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(text)
		}

		for i := range 20 {
			status, reply := send("POST", urls[i%2]+chatPath, chat)
			assert.Equal(t, http.StatusOK, status, reply)
		}
		for _, url := range urls {
			status, reply := send("GET", url+"/v1/dashboard/billing/usage", "")
			require.Equal(t, http.StatusOK, status, reply)
			var usage struct{ Requests int }
			require.NoError(t, json.Unmarshal([]byte(reply), &usage))
			assert.Equal(t, 20, usage.Requests)
		}

		require.NoError(t, stores[0].RevokeKey(t.Context(), info.ID))
		status, _ := send("POST", urls[0]+chatPath, chat)
		assert.Equal(t, http.StatusUnauthorized, status)
		eventually(t, func() bool {
			status, _ := send("POST", urls[1]+chatPath, chat)
			return status == http.StatusUnauthorized
		}, "the other Handler refuses the key")
	})
}

func TestStore_CloseStopsAllGoroutines(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		postgres := strings.HasPrefix(dsn, "postgres")
		if postgres {
			dsn = withParam(t, dsn, "application_name", t.Name())
		}
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		var running sync.WaitGroup
		for i := range 20 {
			running.Go(func() {
				_, err := s.Lookup(t.Context(), fmt.Sprint("sk-", i))
				assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
				assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint(i), "acme", "m", noon, 1)))
			})
		}
		running.Wait()
		require.True(t, isRunning("sqlstore.(*Store).runBackground"))
		require.True(t, isRunning("database/sql.(*DB).connectionOpener"))
		require.NoError(t, s.Close())
		for _, function := range []string{"sqlstore.(*Store)", "keycache.(*Cache", "database/sql.", "pgxpool.", "puddle."} {
			eventually(t, func() bool { return !isRunning(function) }, function+" has returned")
		}
		if postgres {
			admin := openStore(t, newPostgres(t), nil)
			eventually(t, func() bool {
				return queryInt(t, admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", t.Name()) == 0
			}, "all connections are closed")
		}
	})
}

// isRunning reports whether function is on the stack of a goroutine.
func isRunning(function string) bool {
	buf := make([]byte, 1<<22)
	return bytes.Contains(buf[:runtime.Stack(buf, true)], []byte(function))
}

// If PostgreSQL hangs, requests that need it fail after seconds rather than after the
// Timeout of minutes. Requests with cached keys are served, with and without a quota.
func TestHandler_PostgresHangs(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	s, err := Open(t.Context(), postgres.DSN(), &Options{KeyTTL: time.Hour, Logger: discardLogger})
	require.NoError(t, err)
	buffer := usagebuffer.New(s, &usagebuffer.Options{Logger: discardLogger})
	h := llmhttp.NewHandler(memory.Echo(), s, &llmhttp.Options{Usage: buffer, Logger: discardLogger})
	_, plain := createKey(t, s, manage.KeyParams{})
	_, limited := createKey(t, s, manage.KeyParams{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}})
	send := func(method, path, secret, body string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(t.Context())
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		began := time.Now()
		h.ServeHTTP(w, r)
		assert.Less(t, time.Since(began), time.Minute, "%s %s", method, path)
		return w.Code
	}
	chat := func(secret string) int {
		return send("POST", "/v1/chat/completions", secret, `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`)
	}
	const usage = "/v1/dashboard/billing/usage"
	require.Equal(t, []int{200, 200, 200}, []int{chat(plain), chat(limited), send("GET", usage, plain, "")})

	postgres.Pause(t)
	statuses := make([]int, 4)
	var running sync.WaitGroup
	for i, request := range []func() int{
		func() int { return chat(plain) },
		func() int { return chat(limited) },
		func() int { return send("GET", usage, plain, "") },
		func() int { return chat("sk-unknown") },
	} {
		running.Go(func() { statuses[i] = request() })
	}
	running.Wait()
	assert.Equal(t, []int{200, 200, 503, 503}, statuses)

	postgres.Resume(t)
	eventually(t, func() bool { return send("GET", usage, plain, "") == 200 }, "the usage endpoint answers again")
	require.NoError(t, buffer.Close(t.Context()))
	require.NoError(t, s.Close())
}
