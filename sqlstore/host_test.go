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
		info, secret := createKey(t, stores[0], KeyParams{Account: "acme"})
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
		}, "the other Handler still accepts the key")
	})
}

func TestStore_CloseLeavesNothingRunning(t *testing.T) {
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
		for _, function := range []string{"sqlstore.(*Store)", "sqlstore.(*keyCache)", "database/sql.", "pgxpool.", "puddle."} {
			eventually(t, func() bool { return !isRunning(function) }, function+" is still running")
		}
		if postgres {
			admin := openStore(t, newPostgres(t), nil)
			eventually(t, func() bool {
				return queryInt(t, admin, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", t.Name()) == 0
			}, "connections are still open")
		}
	})
}

// isRunning reports whether function is on the stack of a goroutine.
func isRunning(function string) bool {
	buf := make([]byte, 1<<22)
	return bytes.Contains(buf[:runtime.Stack(buf, true)], []byte(function))
}
