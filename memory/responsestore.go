// ResponseStore.

package memory

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/responsestore"
)

// A ResponseStore is a [responsestore.Store] in memory. Create one with
// [NewResponseStore]. Its methods are safe for concurrent use.
//
// The memory is bounded: if the responses need more than MaxBytes, the oldest
// responses of the account that needs most are dropped before they expire. So an
// account never loses responses to others while it needs at most its equal share of
// MaxBytes.
type ResponseStore struct {
	// MaxBytes limits the size of all responses together, in bytes. Zero means
	// 128 MiB; negative means no limit. It must not be changed after the first call
	// of SaveResponse.
	MaxBytes int64

	mu       sync.Mutex // guards the fields below
	byID     map[ownedID]*list.Element
	items    map[ownedID][]*responsestore.Response // by ID of an item: the responses that have it, oldest first
	accounts map[string]*accountResponses
	size     int64 // of all responses, in bytes
}

var _ responsestore.Store = (*ResponseStore)(nil)

// An ownedID is the ID of a response or an item, and the account that owns it.
type ownedID struct{ account, id string }

// An accountResponses has the responses of an account.
type accountResponses struct {
	queue *list.List // of *responsestore.Response, oldest first
	size  int64      // of all of them, in bytes
}

// NewResponseStore returns an empty ResponseStore.
func NewResponseStore() *ResponseStore {
	return &ResponseStore{
		byID: make(
			map[ownedID]*list.Element,
		), items: make(map[ownedID][]*responsestore.Response), accounts: make(map[string]*accountResponses),
	}
}

// SaveResponse implements [responsestore.Store]. It fails only if r is larger
// than MaxBytes, or than the share of its account while others need theirs.
func (s *ResponseStore) SaveResponse(_ context.Context, r *responsestore.Response) error {
	limit := option.Bound(s.MaxBytes, defaultMaxBytes)
	size := responseSize(r)
	if size > limit {
		return fmt.Errorf("memory: response of %d bytes exceeds the limit of %d bytes", size, limit)
	}
	c := *r
	c.Body, c.Input, c.Output = bytes.Clone(r.Body), cloneItems(r.Input), cloneItems(r.Output)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byID[ownedID{c.Account, c.ID}]; old != nil {
		s.removeResponse(old)
	}
	s.addResponse(&c, size)
	s.accounts[c.Account].dropExpired(s)
	if s.size > limit {
		for _, a := range s.accounts {
			a.dropExpired(s)
		}
	}
	for s.size > limit {
		s.removeResponse(s.largestAccount().queue.Front())
	}
	if s.byID[ownedID{c.Account, c.ID}] == nil && !isExpired(&c) {
		return fmt.Errorf("memory: response of %d bytes exceeds what its account may use of %d bytes", size, limit)
	}
	return nil
}

// addResponse adds a response. The caller holds mu.
func (s *ResponseStore) addResponse(r *responsestore.Response, size int64) {
	a := s.accounts[r.Account]
	if a == nil {
		a = &accountResponses{queue: list.New()}
		s.accounts[r.Account] = a
	}
	s.size += size
	a.size += size
	s.byID[ownedID{r.Account, r.ID}] = a.queue.PushBack(r)
	for _, id := range itemIDs(r) {
		s.items[id] = append(s.items[id], r)
	}
}

// dropExpired removes the oldest responses while they are expired. The caller holds s.mu.
func (a *accountResponses) dropExpired(s *ResponseStore) {
	for e := a.queue.Front(); e != nil && isExpired(e.Value.(*responsestore.Response)); e = a.queue.Front() {
		s.removeResponse(e)
	}
}

// largestAccount returns the account that needs most. There must be one. The caller holds mu.
func (s *ResponseStore) largestAccount() *accountResponses {
	var largest *accountResponses
	for _, a := range s.accounts {
		if largest == nil || a.size > largest.size {
			largest = a
		}
	}
	return largest
}

func cloneItems(items []responsestore.Item) []responsestore.Item {
	c := slices.Clone(items)
	for i := range c {
		c[i].Body = bytes.Clone(c[i].Body)
	}
	return c
}

// responseSize returns about how many bytes of memory r needs.
func responseSize(r *responsestore.Response) int64 {
	n := 512 + len(r.Body)
	for _, item := range slices.Concat(r.Input, r.Output) {
		n += 256 + len(item.ID) + len(item.Body)
	}
	return int64(n)
}

// itemIDs returns the IDs of the items of r without duplicates.
func itemIDs(r *responsestore.Response) []ownedID {
	var ids []ownedID
	for _, item := range slices.Concat(r.Input, r.Output) {
		ids = append(ids, ownedID{r.Account, item.ID})
	}
	slices.SortFunc(ids, func(a, b ownedID) int { return strings.Compare(a.id, b.id) })
	return slices.Compact(ids)
}

func isExpired(r *responsestore.Response) bool {
	return !r.Expires.IsZero() && !time.Now().Before(r.Expires)
}

// removeResponse removes a response. The caller holds mu.
func (s *ResponseStore) removeResponse(e *list.Element) {
	r := e.Value.(*responsestore.Response)
	a, size := s.accounts[r.Account], responseSize(r)
	a.queue.Remove(e)
	a.size -= size
	s.size -= size
	if a.queue.Len() == 0 {
		delete(s.accounts, r.Account)
	}
	delete(s.byID, ownedID{r.Account, r.ID})
	for _, id := range itemIDs(r) {
		rest := slices.DeleteFunc(s.items[id], func(other *responsestore.Response) bool { return other == r })
		if s.items[id] = rest; len(rest) == 0 {
			delete(s.items, id)
		}
	}
}

// findResponse returns the element of a response, or nil if it is not stored. The
// caller holds mu.
func (s *ResponseStore) findResponse(account, id string) *list.Element {
	e := s.byID[ownedID{account, id}]
	if e == nil || isExpired(e.Value.(*responsestore.Response)) {
		return nil
	}
	return e
}

// LoadResponse implements [responsestore.Store].
func (s *ResponseStore) LoadResponse(_ context.Context, account, id string) (*responsestore.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findResponse(account, id)
	if e == nil {
		return nil, responsestore.ErrNotFound
	}
	r := *e.Value.(*responsestore.Response)
	return &r, nil
}

// LoadTurn implements [responsestore.Store].
func (s *ResponseStore) LoadTurn(ctx context.Context, account, id string, maxBytes int) (*responsestore.Response, error) {
	r, err := s.LoadResponse(ctx, account, id)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, item := range slices.Concat(r.Input, r.Output) {
		size += len(item.Body)
	}
	if size > maxBytes {
		return nil, responsestore.ErrItemsTooLarge
	}
	r.Body = nil
	return r, nil
}

// LoadItems implements [responsestore.Store].
func (s *ResponseStore) LoadItems(_ context.Context, account string, ids []string, maxBytes int) ([]responsestore.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []responsestore.Item
	for _, id := range ids {
		item := s.findItem(ownedID{account, id})
		if item == nil {
			continue
		}
		if maxBytes -= len(item.Body); maxBytes < 0 {
			return nil, responsestore.ErrItemsTooLarge
		}
		found = append(found, *item)
	}
	return found, nil
}

// findItem returns the item with the given ID in the newest response that has it and has not
// expired, or nil. The caller holds mu.
func (s *ResponseStore) findItem(id ownedID) *responsestore.Item {
	for _, r := range slices.Backward(s.items[id]) {
		if isExpired(r) {
			continue
		}
		hasID := func(item responsestore.Item) bool { return item.ID == id.id }
		if i := slices.IndexFunc(r.Input, hasID); i >= 0 {
			return &r.Input[i]
		}
		return &r.Output[slices.IndexFunc(r.Output, hasID)]
	}
	return nil
}

// DeleteResponse implements [responsestore.Store].
func (s *ResponseStore) DeleteResponse(_ context.Context, account, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findResponse(account, id)
	if e == nil {
		return responsestore.ErrNotFound
	}
	s.removeResponse(e)
	return nil
}
