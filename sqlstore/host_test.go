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
	"github.com/llmhttp/llmhttp/memory"
)

// Two hosts with one database share keys and usage.
func TestHosts(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		type host struct {
			url   string
			store *Store
		}
		hosts := make([]host, 2)
		for i := range hosts {
			s := openStore(t, dsn, &Options{KeyTTL: 50 * time.Millisecond})
			server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), s, &llmhttp.Options{Usage: s, Logger: quiet}))
			t.Cleanup(server.Close)
			hosts[i] = host{server.URL, s}
		}
		info, secret, err := hosts[0].store.CreateKey(t.Context(), KeyParams{Account: "acme"})
		require.NoError(t, err)
		call := func(h host, method, path, body string) (int, []byte) {
			req, err := http.NewRequest(method, h.url+path, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			reply, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, reply
		}
		const ask = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				status, reply := call(hosts[i%2], "POST", "/v1/chat/completions", ask)
				assert.Equal(t, http.StatusOK, status, string(reply))
			})
		}
		all.Wait()
		for _, h := range hosts {
			status, reply := call(h, "GET", "/v1/dashboard/billing/usage", "")
			require.Equal(t, http.StatusOK, status, string(reply))
			var usage struct{ Requests int }
			require.NoError(t, json.Unmarshal(reply, &usage))
			assert.Equal(t, 20, usage.Requests)
		}
		require.NoError(t, hosts[0].store.RevokeKey(t.Context(), info.ID))
		status, _ := call(hosts[0], "POST", "/v1/chat/completions", ask)
		assert.Equal(t, http.StatusUnauthorized, status)
		eventually(t, "the revocation at the other host", func() bool {
			status, _ := call(hosts[1], "POST", "/v1/chat/completions", ask)
			return status == http.StatusUnauthorized
		})
	})
}

// Close leaves neither goroutines nor connections.
func TestNothingLeft(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		if strings.HasPrefix(dsn, "postgres") {
			dsn += "&application_name=" + fmt.Sprint("left", time.Now().UnixNano())
		}
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := s.Lookup(t.Context(), fmt.Sprint("sk-", i))
				assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
				mustRecord(t, s, newRecord(fmt.Sprint(i), "acme", "m", noon, 1))
			})
		}
		all.Wait()
		require.True(t, isRunning("sqlstore.(*Store).runBackground"))
		require.True(t, isRunning("database/sql.(*DB).connectionOpener"))
		require.NoError(t, s.Close())
		for _, what := range []string{"sqlstore.(*Store)", "sqlstore.(*keyCache)", "database/sql.", "pgxpool.", "puddle."} {
			eventually(t, "the end of "+what, func() bool { return !isRunning(what) })
		}
		if _, name, ok := strings.Cut(dsn, "application_name="); ok {
			watch := openStore(t, postgresDSN(t), nil)
			eventually(t, "the end of all connections", func() bool {
				return count(t, watch, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name) == 0
			})
		}
	})
}

// isRunning reports whether what is on the stack of a goroutine.
func isRunning(what string) bool {
	buf := make([]byte, 1<<22)
	return bytes.Contains(buf[:runtime.Stack(buf, true)], []byte(what))
}
