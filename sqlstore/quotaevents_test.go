package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// Package storetest tests what every QuotaEventStore must do.

const (
	eventCount = 50
	eventLease = 5 * time.Second
)

// claimEvents is a child process that claims events, and then waits to be killed.
func claimEvents(s *Store) error {
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range eventCount {
		id := fmt.Sprint("quota_", i)
		claimed, _, err := s.ClaimQuotaEvent(context.Background(), id, eventLease, time.Time{})
		if err != nil {
			return err
		}
		if claimed {
			fmt.Println(id)
		}
	}
	fmt.Println("done")
	select {}
}

// Of several processes one gets each claim. When it was killed, another one gets it after the lease.
func TestQuotaEvents_Processes(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var children []*child
		for range 3 {
			c := startChild(t, roleClaim, dsn)
			require.Equal(t, "ready", c.next())
			children = append(children, c)
		}
		for _, c := range children {
			_, err := io.WriteString(c.stdin, "\n")
			require.NoError(t, err)
		}
		claims := make(map[string]int)
		for _, c := range children {
			for line := c.next(); line != "done"; line = c.next() {
				require.Contains(t, line, "quota_")
				claims[line]++
			}
			require.NoError(t, c.Process.Kill())
		}
		assert.Len(t, claims, eventCount)
		for id, n := range claims {
			assert.Equal(t, 1, n, id)
		}
		for id := range claims {
			eventually(t, func() bool {
				claimed, wait, err := s.ClaimQuotaEvent(t.Context(), id, time.Hour, time.Time{})
				require.NoError(t, err)
				if !claimed {
					require.Positive(t, wait, "nobody has handled it")
					require.LessOrEqual(t, wait, eventLease)
				}
				return claimed
			}, "the lease of a process that was killed")
			require.NoError(t, s.EndQuotaEvent(t.Context(), id, true))
		}
	})
}

// Events are deleted when they need not be kept any longer.
func TestQuotaEvents_Prune(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{Logger: discardLogger})
		now := noon
		s.db.now = func() time.Time { return now }
		claim := func(id string, keep time.Time) bool {
			claimed, _, err := s.ClaimQuotaEvent(t.Context(), id, time.Minute, keep)
			require.NoError(t, err)
			require.NoError(t, s.EndQuotaEvent(t.Context(), id, true))
			return claimed
		}
		const hours = 3
		for i := range hours {
			require.True(t, claim(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Hour)))
		}
		require.True(t, claim("for ever", time.Time{}))
		now = noon.Add(90 * time.Minute)
		s.pruneOldQuotaEvents()
		assert.EqualValues(t, 2, queryInt(t, s, "SELECT count(*) FROM llmhttp_quota_events"))
		assert.False(t, claim("for ever", time.Time{}))
		assert.False(t, claim("2", noon))
		assert.True(t, claim("1", noon))
	})
}

// A Handler whose Store was opened again does not tell a share of a quota again.
func TestQuotaEvents_Restart(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		told := 0
		for range 2 {
			s, err := Open(t.Context(), dsn, nil)
			require.NoError(t, err)
			buffer := usagebuffer.New(s, nil)
			watcher := quotawatch.New(buffer, func(context.Context, *quotawatch.Event) error {
				told++
				return nil
			}, nil)
			h := newQuotaHandler(buffer, watcher.Observe)
			for range 3 {
				require.Contains(t, []int{200, 429}, serveChat(t, h))
			}
			require.NoError(t, h.Shutdown(t.Context()))
			require.NoError(t, watcher.Close(t.Context()))
			require.NoError(t, buffer.Close(t.Context()))
			require.NoError(t, s.Close())
		}
		assert.Equal(t, 2, told, "80 % and all of it")
	})
}

// newQuotaHandler returns a Handler with a key whose quota two requests use up.
func newQuotaHandler(usage llmhttp.UsageStore, observe llmhttp.Observer) *llmhttp.Handler {
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			c := llm.TextChunk("Hello!")
			c.Usage = &llm.Usage{PromptTokens: 40, CompletionTokens: 10}
			yield(c, nil)
		}
	})
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 100}}}, nil
	})
	return llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: usage, Observe: observe, Logger: discardLogger})
}

func serveChat(t *testing.T, h http.Handler) (status int) {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello!"}]}`))
	r.Header.Set("Authorization", "Bearer sk-acme")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(t.Context()))
	return w.Code
}
