package console_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// A slowStore is a store whose reports and lists wait until the test lets them go on or their
// context ends. It must be used in a synctest bubble.
type slowStore struct {
	keys  *memory.KeyStore
	usage *memory.UsageStore
	goOn  chan struct{}

	mu      sync.Mutex // guards the fields below
	running int
	most    int
}

func newSlowStore() *slowStore {
	return &slowStore{keys: memory.NewKeyStore(), usage: memory.NewUsageStore(), goOn: make(chan struct{})}
}

func (s *slowStore) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
	s.most = max(s.most, s.running)
}

func (s *slowStore) wait(ctx context.Context) error {
	s.add(1)
	defer s.add(-1)
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return errors.New("canceling statement due to user request") // as a database may say
	}
}

type slowKeys struct {
	*memory.KeyStore
	slow *slowStore
}

func (k slowKeys) ListKeys(ctx context.Context, q manage.KeyQuery) ([]manage.KeyInfo, error) {
	if err := k.slow.wait(ctx); err != nil {
		return nil, err
	}
	return k.KeyStore.ListKeys(ctx, q)
}

type slowUsage struct {
	*memory.UsageStore
	slow *slowStore
}

func (u slowUsage) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	if err := u.slow.wait(ctx); err != nil {
		return manage.Report{}, err
	}
	return u.UsageStore.Report(ctx, q)
}

// A slowHost is a console over a slowStore. The header User of a request is an account, or "admin".
type slowHost struct {
	store   *slowStore
	handler http.Handler
	pages   sync.WaitGroup

	mu      sync.Mutex // guards replies
	replies []*httptest.ResponseRecorder
}

func newSlowHost(t *testing.T) *slowHost {
	h := &slowHost{store: newSlowStore()}
	c, err := console.New(slowKeys{h.store.keys, h.store}, &console.Options{
		User: func(r *http.Request) (console.User, error) {
			name := r.Header.Get("User")
			return console.User{Name: name, Account: name, Admin: name == "admin"}, nil
		},
		Usage: slowUsage{h.store.usage, h.store}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	h.handler = c
	return h
}

// open requests a page n times in the background.
func (h *slowHost) open(user, path string, n int) {
	for range n {
		h.pages.Go(func() {
			r, w := httptest.NewRequest("GET", "/console/"+path, nil), httptest.NewRecorder()
			r.Header.Set("User", user)
			h.handler.ServeHTTP(w, r)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.replies = append(h.replies, w)
		})
	}
	synctest.Wait()
}

// statuses returns how many replies since the last call have each status.
func (h *slowHost) statuses() map[int]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := make(map[int]int)
	for _, w := range h.replies {
		counts[w.Code]++
	}
	h.replies = nil
	return counts
}

// One person reads two reports at a time, and all three. Others wait for their turn.
func TestReports_Bounded(t *testing.T) {
	for _, path := range []string{"usage", "usage?by=user", "usage/table.csv?by=key", "keys"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSlowHost(t)
				h.open("acme", path, 20)
				assert.Equal(t, map[int]int{http.StatusTooManyRequests: 8}, h.statuses(), "beside those that are read, 10 wait")
				assert.Equal(t, 2, h.store.running, "of one account")
				h.open("globex", path, 1)
				assert.Equal(t, 3, h.store.running)
				h.open("admin", path, 1)
				close(h.store.goOn)
				h.pages.Wait()
				assert.Equal(t, map[int]int{http.StatusOK: 14}, h.statuses())
				assert.Equal(t, 3, h.store.most)
			})
		})
	}
}

// A page whose time ends says why, and so does one that has not had its turn until then.
func TestReports_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, start := newSlowHost(t), time.Now()
		h.open("acme", "usage?by=user", 3)
		h.pages.Wait()
		assert.Equal(t, 30*time.Second, time.Since(start))
		texts := ""
		for _, w := range h.replies {
			texts += w.Body.String()
		}
		assert.Equal(t, map[int]int{http.StatusGatewayTimeout: 2, http.StatusServiceUnavailable: 1}, h.statuses())
		assert.Contains(t, texts, "This page takes longer than 30s. Please choose a shorter period")
		assert.Contains(t, texts, "Other reports have taken all the time that this page had.")
		close(h.store.goOn)
		h.open("acme", "usage?by=user", 3)
		h.pages.Wait()
		assert.Equal(t, map[int]int{http.StatusOK: 3}, h.statuses(), "nothing is held any more")
	})
}
