package storetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/responsestore"
)

type (
	storedResponse = responsestore.Response
	storedItem     = responsestore.Item
)

func TestResponseStoreMutants(t *testing.T) {
	testMutants(t, responseSequences.Run, responseChecks, responseFixture(func(*responseMap) {}), responseMutants)
}

// responseFixture returns a constructor of a test of a responseMap that edit has
// changed.
func responseFixture(edit func(m *responseMap)) func(testing.TB) responseTest {
	return func(testing.TB) responseTest {
		m := &responseMap{
			saved:   make(map[[2]string]*storedResponse),
			key:     func(account, id string) [2]string { return [2]string{account, id} },
			keep:    cloneResponse,
			expired: func(r *storedResponse) bool { return !r.Expires.IsZero() && !time.Now().Before(r.Expires) },
			missing: responsestore.ErrNotFound,
			match:   func(r *storedResponse, account, item, id string) bool { return r.Account == account && item == id },

			itemsSize: bodyBytes,
			turnSize:  turnBytes,
			turn:      func(r *storedResponse, _ int) { r.Body = nil },
		}
		edit(m)
		return newResponseTest(m)
	}
}

// A responseMap is a simple correct ResponseStore. Mutants replace its functions.
type responseMap struct {
	mu    sync.Mutex
	saved map[[2]string]*storedResponse // guarded by mu

	key      func(account, id string) [2]string
	keep     func(r *storedResponse) *storedResponse
	expired  func(r *storedResponse) bool
	match    func(r *storedResponse, account, item, id string) bool
	missing  error
	orphans  bool // items survive their response
	repeated bool // LoadItems returns every item of an ID
	limit    int  // the most IDs in a call; 0 means no limit
	once     bool // a response cannot be saved again
	anyone   bool // DeleteResponse ignores the account
	again    bool // a second deletion succeeds

	itemsSize func(items []storedItem) int      // counts what LoadItems returns
	turnSize  func(r *storedResponse) int       // counts what LoadTurn returns
	turn      func(r *storedResponse, size int) // makes what LoadTurn returns of a response
}

func (m *responseMap) SaveResponse(_ context.Context, r *storedResponse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.key(r.Account, r.ID)
	if m.once && m.saved[key] != nil {
		return errors.New("duplicate key")
	}
	m.saved[key] = m.keep(r)
	return nil
}

func (m *responseMap) LoadResponse(_ context.Context, account, id string) (*storedResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.saved[m.key(account, id)]
	if r == nil || r.ID == "" || m.expired(r) {
		return nil, m.missing
	}
	return cloneResponse(r), nil
}

func (m *responseMap) LoadTurn(ctx context.Context, account, id string, maxBytes int) (*storedResponse, error) {
	r, err := m.LoadResponse(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if m.turnSize(r) > maxBytes {
		return nil, responsestore.ErrItemsTooLarge
	}
	m.turn(r, maxBytes)
	return r, nil
}

func (m *responseMap) LoadItems(_ context.Context, account string, ids []string, maxBytes int) (found []storedItem, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 && len(ids) > m.limit {
		return nil, errors.New("too many parameters")
	}
	for _, id := range ids {
		n := len(found)
		for _, r := range m.saved {
			for _, item := range slices.Concat(r.Input, r.Output) {
				if m.match(r, account, item.ID, id) && !m.expired(r) && (m.repeated || len(found) == n) {
					found = append(found, item)
				}
			}
		}
	}
	if m.itemsSize(found) > maxBytes {
		return nil, responsestore.ErrItemsTooLarge
	}
	return found, nil
}

func (m *responseMap) DeleteResponse(_ context.Context, account, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.saved {
		if r.ID != id || !m.anyone && r.Account != account || m.expired(r) {
			continue
		}
		if m.orphans {
			r.ID = "" // found no more, but its items are
		} else {
			delete(m.saved, key)
		}
		return nil
	}
	if m.again {
		return nil
	}
	return responsestore.ErrNotFound
}

// keeping returns a constructor of a test whose store changes what it keeps.
func keeping(change func(r *storedResponse)) func(testing.TB) responseTest {
	return responseFixture(func(m *responseMap) {
		m.keep = func(r *storedResponse) *storedResponse {
			c := cloneResponse(r)
			change(c)
			return c
		}
	})
}

var responseMutants = []mutant[responseTest]{
	{"a missing response has another error", randomCalls, responseFixture(func(m *responseMap) { m.missing = errNoRows })},
	{"deleting what does not exist succeeds", randomCalls, responseFixture(func(m *responseMap) { m.again = true })},

	{"the previous ID is lost", randomCalls, keeping(func(r *storedResponse) { r.Previous = "" })},
	{"the expiry is lost", randomCalls, keeping(func(r *storedResponse) { r.Expires = time.Time{} })},
	{"times are rounded to seconds", randomCalls, keeping(func(r *storedResponse) { r.Created = r.Created.Truncate(time.Second).Add(time.Second) })},
	{"items are sorted", randomCalls, keeping(func(r *storedResponse) {
		slices.SortFunc(r.Input, func(a, b storedItem) int { return strings.Compare(a.ID, b.ID) })
		slices.SortFunc(r.Output, func(a, b storedItem) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"bodies are compacted", randomCalls, keeping(func(r *storedResponse) { r.Body = bytes.ReplaceAll(r.Body, []byte(" "), nil) })},
	{"input and output are one list", randomCalls, keeping(func(r *storedResponse) { r.Input, r.Output = append(r.Input, r.Output...), nil })},

	{"no expiry is 1970", randomCalls, keeping(func(r *storedResponse) {
		if r.Expires.IsZero() {
			r.Expires = time.Unix(1<<40, 0)
		}
	})},

	{"accounts are ignored", randomCalls, responseFixture(func(m *responseMap) { m.key = func(_, id string) [2]string { return [2]string{"", id} } })},
	{"items of other accounts are found", randomCalls, responseFixture(func(m *responseMap) {
		m.match = func(_ *storedResponse, _, item, id string) bool { return item == id }
	})},
	{"responses of other accounts are deleted", randomCalls, responseFixture(func(m *responseMap) { m.anyone = true })},

	{"the case of IDs is ignored", randomCalls, responseFixture(func(m *responseMap) {
		m.key = func(account, id string) [2]string { return [2]string{account, strings.ToLower(id)} }
	})},
	{"IDs are patterns", randomCalls, responseFixture(func(m *responseMap) {
		m.match = func(r *storedResponse, account, item, id string) bool {
			return r.Account == account && (item == id || strings.HasSuffix(id, "%") && strings.HasPrefix(item, strings.TrimSuffix(id, "%")))
		}
		m.repeated = true
	})},

	{"output items are not found", randomCalls, responseFixture(func(m *responseMap) {
		m.match = func(r *storedResponse, account, item, id string) bool {
			return r.Account == account && item == id && slices.ContainsFunc(r.Input, func(i storedItem) bool { return i.ID == id })
		}
	})},
	{"items that are sent again are found twice", randomCalls, responseFixture(func(m *responseMap) { m.repeated = true })},
	{"a turn has its Body", randomCalls, responseFixture(func(m *responseMap) { m.turn = func(*storedResponse, int) {} })},
	{"the size of a turn is not checked", randomCalls, responseFixture(func(m *responseMap) { m.turnSize = func(*storedResponse) int { return math.MinInt } })},
	{"the Body counts", randomCalls, responseFixture(func(m *responseMap) {
		m.turnSize = func(r *storedResponse) int { return len(r.Body) + bodyBytes(r.Input) + bodyBytes(r.Output) }
	})},
	{"the output does not count", randomCalls, responseFixture(func(m *responseMap) {
		m.turnSize = func(r *storedResponse) int { return bodyBytes(r.Input) }
	})},
	{"a turn is cut at its limit", randomCalls, responseFixture(func(m *responseMap) {
		m.turnSize = func(*storedResponse) int { return math.MinInt }
		m.turn = func(r *storedResponse, maxBytes int) {
			if r.Body = nil; bodyBytes(r.Input)+bodyBytes(r.Output) > maxBytes {
				r.Output = nil
			}
		}
	})},
	{"the size of items is not checked", randomCalls, responseFixture(func(m *responseMap) { m.itemsSize = func([]storedItem) int { return math.MinInt } })},
	{"each item is checked alone", randomCalls, responseFixture(func(m *responseMap) {
		m.itemsSize = func(items []storedItem) (largest int) {
			for _, item := range items {
				largest = max(largest, len(item.Body))
			}
			return largest
		}
	})},
	{"the responses of items count", randomCalls, responseFixture(func(m *responseMap) {
		m.itemsSize = func([]storedItem) (n int) {
			for _, r := range m.saved {
				n += bodyBytes(r.Input) + bodyBytes(r.Output)
			}
			return n
		}
	})},
	{"a call has a limited number of IDs", "LargeResponse", responseFixture(func(m *responseMap) { m.limit = 999 })},
	{"items survive their response", randomCalls, responseFixture(func(m *responseMap) { m.orphans = true })},
	{"responses do not expire", randomCalls, responseFixture(func(m *responseMap) { m.expired = func(*storedResponse) bool { return false } })},
	{"a response cannot be saved again", randomCalls, responseFixture(func(m *responseMap) { m.once = true })},
	{"the store keeps what it was passed", randomCalls, responseFixture(func(m *responseMap) {
		m.keep = func(r *storedResponse) *storedResponse { c := *r; return &c }
	})},
	{"bodies are cut", "LargeResponse", keeping(func(r *storedResponse) {
		for i := range r.Output {
			r.Output[i].Body = r.Output[i].Body[:min(len(r.Output[i].Body), 1<<20)]
		}
	})},
	{"saving again fails", "ConcurrentCalls", responseFixture(func(m *responseMap) { m.once = true })},
}
