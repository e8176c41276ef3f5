package memory

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A ResponseStore is a [llmhttp.ResponseStore] in memory. Create one with
// [NewResponseStore]. Its methods are safe for concurrent use.
//
// The memory is bounded: if the responses need more than MaxBytes, the oldest
// ones are dropped before they expire.
type ResponseStore struct {
	// MaxBytes limits the size of all responses together. If it is zero or
	// negative, the limit is 128 MiB. It must not be changed after the first
	// call of SaveResponse.
	MaxBytes int

	mu    sync.Mutex // guards the fields below
	byID  map[ownedID]*list.Element
	items map[ownedID][]*llmhttp.StoredResponse // by ID of an item: the responses that have it, oldest first
	queue *list.List                            // of *llmhttp.StoredResponse, oldest first
	size  int                                   // of all responses, in bytes
}

var _ llmhttp.ResponseStore = (*ResponseStore)(nil)

// An ownedID is the ID of a response or an item, and the account that owns it.
type ownedID struct{ account, id string }

// NewResponseStore returns an empty ResponseStore.
func NewResponseStore() *ResponseStore {
	return &ResponseStore{
		byID: make(map[ownedID]*list.Element), items: make(map[ownedID][]*llmhttp.StoredResponse), queue: list.New(),
	}
}

// SaveResponse implements [llmhttp.ResponseStore]. It fails only if r is larger
// than MaxBytes.
func (s *ResponseStore) SaveResponse(_ context.Context, r *llmhttp.StoredResponse) error {
	limit := cmp.Or(max(s.MaxBytes, 0), 128<<20)
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
	s.dropOldest(limit - size)
	s.size += size
	s.byID[ownedID{c.Account, c.ID}] = s.queue.PushBack(&c)
	for _, id := range itemIDs(&c) {
		s.items[id] = append(s.items[id], &c)
	}
	return nil
}

// dropOldest removes the oldest responses while they are expired, or while all responses
// together are larger than limit. The caller holds mu.
func (s *ResponseStore) dropOldest(limit int) {
	for {
		oldest := s.queue.Front()
		if oldest == nil || s.size <= limit && !isExpired(oldest.Value.(*llmhttp.StoredResponse)) {
			return
		}
		s.removeResponse(oldest)
	}
}

func cloneItems(items []llmhttp.StoredItem) []llmhttp.StoredItem {
	c := slices.Clone(items)
	for i := range c {
		c[i].Body = bytes.Clone(c[i].Body)
	}
	return c
}

// responseSize returns about how many bytes of memory r needs.
func responseSize(r *llmhttp.StoredResponse) int {
	n := 512 + len(r.Body)
	for _, item := range slices.Concat(r.Input, r.Output) {
		n += 256 + len(item.ID) + len(item.Body)
	}
	return n
}

// itemIDs returns the IDs of the items of r without duplicates.
func itemIDs(r *llmhttp.StoredResponse) []ownedID {
	var ids []ownedID
	for _, item := range slices.Concat(r.Input, r.Output) {
		ids = append(ids, ownedID{r.Account, item.ID})
	}
	slices.SortFunc(ids, func(a, b ownedID) int { return strings.Compare(a.id, b.id) })
	return slices.Compact(ids)
}

func isExpired(r *llmhttp.StoredResponse) bool {
	return !r.Expires.IsZero() && !time.Now().Before(r.Expires)
}

// removeResponse removes a response. The caller holds mu.
func (s *ResponseStore) removeResponse(e *list.Element) {
	r := s.queue.Remove(e).(*llmhttp.StoredResponse)
	s.size -= responseSize(r)
	delete(s.byID, ownedID{r.Account, r.ID})
	for _, id := range itemIDs(r) {
		rest := slices.DeleteFunc(s.items[id], func(other *llmhttp.StoredResponse) bool { return other == r })
		if s.items[id] = rest; len(rest) == 0 {
			delete(s.items, id)
		}
	}
}

// findResponse returns the element of a response, or nil if it is not stored. The
// caller holds mu.
func (s *ResponseStore) findResponse(account, id string) *list.Element {
	e := s.byID[ownedID{account, id}]
	if e == nil || isExpired(e.Value.(*llmhttp.StoredResponse)) {
		return nil
	}
	return e
}

// LoadResponse implements [llmhttp.ResponseStore].
func (s *ResponseStore) LoadResponse(_ context.Context, account, id string) (*llmhttp.StoredResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findResponse(account, id)
	if e == nil {
		return nil, llmhttp.ErrResponseNotFound
	}
	r := *e.Value.(*llmhttp.StoredResponse)
	return &r, nil
}

// LoadItems implements [llmhttp.ResponseStore].
func (s *ResponseStore) LoadItems(_ context.Context, account string, ids []string) ([]llmhttp.StoredItem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []llmhttp.StoredItem
	for _, id := range ids {
		for _, r := range slices.Backward(s.items[ownedID{account, id}]) {
			if isExpired(r) {
				continue
			}
			found = append(found, *findItem(r, id))
			break
		}
	}
	return found, nil
}

// findItem returns the item of r with the given ID, which must exist.
func findItem(r *llmhttp.StoredResponse, id string) *llmhttp.StoredItem {
	hasID := func(item llmhttp.StoredItem) bool { return item.ID == id }
	if i := slices.IndexFunc(r.Input, hasID); i >= 0 {
		return &r.Input[i]
	}
	return &r.Output[slices.IndexFunc(r.Output, hasID)]
}

// DeleteResponse implements [llmhttp.ResponseStore].
func (s *ResponseStore) DeleteResponse(_ context.Context, account, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findResponse(account, id)
	if e == nil {
		return llmhttp.ErrResponseNotFound
	}
	s.removeResponse(e)
	return nil
}
