package llmhttptest

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
	testMutants(t, nil, responseChecks, responseFixture(func(*responseMap) {}), responseMutants)
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
			turnSize:  func(r *storedResponse) int { return bodyBytes(r.Input) + bodyBytes(r.Output) },
			turn:      func(r *storedResponse, _ int) { r.Body = nil },
		}
		edit(m)
		return responseTest{m, unique("account")}
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

func cloneResponse(r *storedResponse) *storedResponse {
	c := *r
	c.Body = bytes.Clone(r.Body)
	for _, items := range []*[]storedItem{&c.Input, &c.Output} {
		*items = slices.Clone(*items)
		for i := range *items {
			(*items)[i].Body = bytes.Clone((*items)[i].Body)
		}
	}
	return &c
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

// bodyBytes returns the number of bytes of the Bodies of items.
func bodyBytes(items []storedItem) (n int) {
	for _, item := range items {
		n += len(item.Body)
	}
	return n
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
	{"a missing response has another error", "Unknown", responseFixture(func(m *responseMap) { m.missing = errNoRows })},
	{"deleting what does not exist succeeds", "Unknown", responseFixture(func(m *responseMap) { m.again = true })},

	{"the previous ID is lost", "RoundTrip", keeping(func(r *storedResponse) { r.Previous = "" })},
	{"the expiry is lost", "RoundTrip", keeping(func(r *storedResponse) { r.Expires = time.Time{} })},
	{"times are rounded to seconds", "RoundTrip", keeping(func(r *storedResponse) { r.Created = r.Created.Truncate(time.Second).Add(time.Second) })},
	{"items are sorted", "RoundTrip", keeping(func(r *storedResponse) {
		slices.SortFunc(r.Input, func(a, b storedItem) int { return strings.Compare(a.ID, b.ID) })
		slices.SortFunc(r.Output, func(a, b storedItem) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"bodies are compacted", "RoundTrip", keeping(func(r *storedResponse) { r.Body = bytes.ReplaceAll(r.Body, []byte(" "), nil) })},
	{"input and output are one list", "RoundTrip", keeping(func(r *storedResponse) { r.Input, r.Output = append(r.Input, r.Output...), nil })},

	{"no expiry is 1970", "EmptyFields", keeping(func(r *storedResponse) {
		if r.Expires.IsZero() {
			r.Expires = time.Unix(1<<40, 0)
		}
	})},

	{"accounts are ignored", "Accounts", responseFixture(func(m *responseMap) { m.key = func(_, id string) [2]string { return [2]string{"", id} } })},
	{"items of other accounts are found", "Accounts", responseFixture(func(m *responseMap) {
		m.match = func(_ *storedResponse, _, item, id string) bool { return item == id }
	})},
	{"responses of other accounts are deleted", "Accounts", responseFixture(func(m *responseMap) { m.anyone = true })},

	{"the case of IDs is ignored", "SimilarNames", responseFixture(func(m *responseMap) {
		m.key = func(account, id string) [2]string { return [2]string{account, strings.ToLower(id)} }
	})},
	{"IDs are patterns", "SimilarNames", responseFixture(func(m *responseMap) {
		m.match = func(r *storedResponse, account, item, id string) bool {
			return r.Account == account && (item == id || strings.HasSuffix(id, "%") && strings.HasPrefix(item, strings.TrimSuffix(id, "%")))
		}
		m.repeated = true
	})},

	{"output items are not found", "Items", responseFixture(func(m *responseMap) {
		m.match = func(r *storedResponse, account, item, id string) bool {
			return r.Account == account && item == id && slices.ContainsFunc(r.Input, func(i storedItem) bool { return i.ID == id })
		}
	})},
	{"items that are sent again are found twice", "Items", responseFixture(func(m *responseMap) { m.repeated = true })},
	{"a turn has its Body", "RoundTrip", responseFixture(func(m *responseMap) { m.turn = func(*storedResponse, int) {} })},
	{"the size of a turn is not checked", "TurnBytes", responseFixture(func(m *responseMap) { m.turnSize = func(*storedResponse) int { return math.MinInt } })},
	{"the Body counts", "TurnBytes", responseFixture(func(m *responseMap) {
		m.turnSize = func(r *storedResponse) int { return len(r.Body) + bodyBytes(r.Input) + bodyBytes(r.Output) }
	})},
	{"the output does not count", "TurnBytes", responseFixture(func(m *responseMap) {
		m.turnSize = func(r *storedResponse) int { return bodyBytes(r.Input) }
	})},
	{"a turn is cut at its limit", "TurnBytes", responseFixture(func(m *responseMap) {
		m.turnSize = func(*storedResponse) int { return math.MinInt }
		m.turn = func(r *storedResponse, maxBytes int) {
			if r.Body = nil; bodyBytes(r.Input)+bodyBytes(r.Output) > maxBytes {
				r.Output = nil
			}
		}
	})},
	{"the size of items is not checked", "ItemBytes", responseFixture(func(m *responseMap) { m.itemsSize = func([]storedItem) int { return math.MinInt } })},
	{"each item is checked alone", "ItemBytes", responseFixture(func(m *responseMap) {
		m.itemsSize = func(items []storedItem) (largest int) {
			for _, item := range items {
				largest = max(largest, len(item.Body))
			}
			return largest
		}
	})},
	{"the responses of items count", "ItemBytes", responseFixture(func(m *responseMap) {
		m.itemsSize = func([]storedItem) (n int) {
			for _, r := range m.saved {
				n += bodyBytes(r.Input) + bodyBytes(r.Output)
			}
			return n
		}
	})},
	{"a call has a limited number of IDs", "ManyItems", responseFixture(func(m *responseMap) { m.limit = 999 })},
	{"items survive their response", "Delete", responseFixture(func(m *responseMap) { m.orphans = true })},
	{"responses do not expire", "Expiry", responseFixture(func(m *responseMap) { m.expired = func(*storedResponse) bool { return false } })},
	{"a response cannot be saved again", "SaveAgain", responseFixture(func(m *responseMap) { m.once = true })},
	{"the store keeps what it was passed", "NoSharedMemory", responseFixture(func(m *responseMap) {
		m.keep = func(r *storedResponse) *storedResponse { c := *r; return &c }
	})},
	{"bodies are cut", "LargeResponse", keeping(func(r *storedResponse) {
		for i := range r.Output {
			r.Output[i].Body = r.Output[i].Body[:min(len(r.Output[i].Body), 1<<20)]
		}
	})},
	{"items of deleted responses are found by chance", "RandomCalls", responseFixture(func(m *responseMap) { m.orphans = true })},
	{"saving again fails", "ConcurrentCalls", responseFixture(func(m *responseMap) { m.once = true })},
}
