// TestResponseStore and its checks.

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/responsestore"
)

// TestResponseStore tests a [responsestore.Store]. It calls newStore once for
// each subtest. The stores may share a database, because each subtest uses
// accounts of its own. An account must have room for a hundred responses and for
// one of 4 MiB.
func TestResponseStore(t *testing.T, newStore func(t testing.TB) responsestore.Store) {
	t.Helper()
	newTest := func(t testing.TB) responseTest { return newResponseTest(newStore(t)) }
	kit.Run(t, &responseSequences, responseChecks, newTest)
}

// A responseTest is the ResponseStore that a check tests, with what it should have. Its methods
// report results that differ from that.
type responseTest struct {
	responsestore.Store
	account string // unused; the accounts of the test begin with it
	saved   map[ownedID]*responsestore.Response
}

// An ownedID is the ID of a response and the account that owns it.
type ownedID struct{ account, id string }

func newResponseTest(s responsestore.Store) responseTest {
	return responseTest{s, kit.Unique("account"), map[ownedID]*responsestore.Response{}}
}

// newResponse returns a response of the test's account with an input item and an output
// item.
func (s *responseTest) newResponse() *responsestore.Response {
	id := kit.Unique("resp")
	return &responsestore.Response{
		ID: id, Account: s.account, Created: time.Now().Truncate(time.Microsecond), Body: []byte(`{"id":"` + id + `"}`),
		Input:  []responsestore.Item{{ID: kit.Unique("msg"), Body: []byte(`"Hi"`)}},
		Output: []responsestore.Item{{ID: kit.Unique("msg"), Body: []byte(`"Hello"`)}},
	}
}

// find returns the response that the store should have, or nil.
func (s *responseTest) find(account, id string) *responsestore.Response {
	r := s.saved[ownedID{account, id}]
	if r == nil || !r.Expires.IsZero() && r.Expires.Before(time.Now()) {
		return nil
	}
	return r
}

// save saves a copy of r and then overwrites the copy, which the store must not keep.
func (s *responseTest) save(t testing.TB, r *responsestore.Response) {
	t.Helper()
	passed := cloneResponse(r)
	if err := s.SaveResponse(t.Context(), passed); err != nil {
		kit.Wrong(t, "SaveResponse", err, nil)
	}
	kit.WantSame(t, "SaveResponse, which changed what it was passed", *passed, *r)
	clear(passed.Body)
	for _, items := range [][]responsestore.Item{passed.Input, passed.Output} {
		for i := range items {
			clear(items[i].Body)
		}
		clear(items)
	}
	s.saved[ownedID{r.Account, r.ID}] = r
}

func (s *responseTest) delete(t testing.TB, account, id string) {
	t.Helper()
	var want error
	if s.find(account, id) == nil {
		want = responsestore.ErrNotFound
	}
	if err := s.DeleteResponse(t.Context(), account, id); !errors.Is(err, want) {
		kit.Wrong(t, "DeleteResponse", err, want)
	}
	delete(s.saved, ownedID{account, id})
}

func (s *responseTest) load(t testing.TB, account, id string) {
	t.Helper()
	got, err := s.LoadResponse(t.Context(), account, id)
	wantResponse(t, "LoadResponse", got, err, s.find(account, id), math.MaxInt)
}

func (s *responseTest) loadTurn(t testing.TB, account, id string, maxBytes int) {
	t.Helper()
	turn := cloneResponse(s.find(account, id))
	if turn != nil {
		turn.Body = nil
	}
	got, err := s.LoadTurn(t.Context(), account, id, maxBytes)
	wantResponse(t, fmt.Sprintf("LoadTurn with the limit %d", maxBytes), got, err, turn, maxBytes)
}

// wantResponse reports an error unless call returned want, or the error that it should.
func wantResponse(t testing.TB, call string, got *responsestore.Response, err error, want *responsestore.Response, maxBytes int) {
	t.Helper()
	var wantErr error
	switch {
	case want == nil:
		wantErr = responsestore.ErrNotFound
	case turnBytes(want) > maxBytes:
		want, wantErr = nil, responsestore.ErrItemsTooLarge
	}
	if !errors.Is(err, wantErr) || (got == nil) != (want == nil) {
		kit.Wrong(t, call, fmt.Sprintf("a response: %t, and the error %v", got != nil, err), fmt.Sprintf("%t and %v", want != nil, wantErr))
	} else {
		kit.WantSame(t, call, cloneResponse(got), cloneResponse(want))
	}
}

// items returns the items of the responses of an account by ID. The store may return any of those
// with the same ID.
func (s *responseTest) items(account string) map[string][]responsestore.Item {
	items := map[string][]responsestore.Item{}
	for id, r := range s.saved {
		if id.account != account || s.find(account, id.id) == nil {
			continue
		}
		for _, item := range slices.Concat(r.Input, r.Output) {
			items[item.ID] = append(items[item.ID], item)
		}
	}
	return items
}

// itemBytes returns the least and the most bytes that LoadItems of distinct IDs may return.
func itemBytes(items map[string][]responsestore.Item, ids []string) (least, most int) {
	size := func(a, b responsestore.Item) int { return len(a.Body) - len(b.Body) }
	for _, id := range ids {
		if len(items[id]) > 0 {
			least += len(slices.MinFunc(items[id], size).Body)
			most += len(slices.MaxFunc(items[id], size).Body)
		}
	}
	return least, most
}

func (s *responseTest) loadItems(t testing.TB, account string, ids []string, maxBytes int) {
	t.Helper()
	call := fmt.Sprintf("LoadItems of %d IDs with the limit %d", len(ids), maxBytes)
	items := s.items(account)
	least, most := itemBytes(items, ids)
	got, err := s.LoadItems(t.Context(), account, ids, maxBytes)
	switch tooLarge := errors.Is(err, responsestore.ErrItemsTooLarge); {
	case tooLarge && most > maxBytes && len(got) == 0:
		return
	case tooLarge != (least > maxBytes) || err != nil:
		kit.Wrong(t, call, fmt.Sprintf("%d items and the error %v", len(got), err), fmt.Sprintf("what items of %d to %d bytes need", least, most))
		return
	}
	want := 0
	for _, id := range ids {
		want += min(len(items[id]), 1)
	}
	if len(got) != want || bodyBytes(got) > maxBytes {
		kit.Wrong(t, call, fmt.Sprintf("%d items of %d bytes", len(got), bodyBytes(got)), fmt.Sprint(want, " items"))
	}
	for _, item := range got {
		if !slices.Contains(ids, item.ID) || !slices.ContainsFunc(items[item.ID], func(i responsestore.Item) bool { return bytes.Equal(i.Body, item.Body) }) {
			kit.Wrong(t, call, "the item "+kit.Describe(item), "one of those IDs as it was saved")
			return
		}
		items[item.ID] = nil // not again
	}
}

// loadAll loads a response and its items in every way.
func (s *responseTest) loadAll(t testing.TB, r *responsestore.Response) {
	t.Helper()
	s.load(t, r.Account, r.ID)
	s.loadTurn(t, r.Account, r.ID, math.MaxInt)
	var ids []string
	for _, item := range slices.Concat(r.Input, r.Output) {
		ids = append(ids, item.ID)
	}
	s.loadItems(t, r.Account, ids, math.MaxInt)
}

func bodyBytes(items []responsestore.Item) (n int) {
	for _, item := range items {
		n += len(item.Body)
	}
	return n
}

func turnBytes(r *responsestore.Response) int { return bodyBytes(r.Input) + bodyBytes(r.Output) }

// cloneResponse returns a copy of r with other slices. Lists of items are not nil.
func cloneResponse(r *responsestore.Response) *responsestore.Response {
	if r == nil {
		return nil
	}
	c := *r
	c.Body = bytes.Clone(r.Body)
	for _, items := range []*[]responsestore.Item{&c.Input, &c.Output} {
		*items = append([]responsestore.Item{}, *items...)
		for i := range *items {
			(*items)[i].Body = bytes.Clone((*items)[i].Body)
		}
	}
	return &c
}

// responseChecks test what random calls do not: large responses, and other calls at the same time.
var responseChecks = []kit.Check[responseTest]{{"LargeResponse", checkResponsesLarge}, {"ConcurrentCalls", checkResponsesConcurrent}}

func checkResponsesLarge(t testing.TB, s responseTest) {
	many, large := s.newResponse(), s.newResponse()
	for i := range 3000 {
		many.Input = append(many.Input, responsestore.Item{ID: kit.Unique("in"), Body: fmt.Append(nil, i)})
	}
	large.Output[0].Body = []byte(`"` + strings.Repeat("large ", 4<<20/6) + `"`)
	for _, r := range []*responsestore.Response{many, large} {
		s.save(t, r)
		s.loadAll(t, r)
	}
}

// checkResponsesConcurrent lets each worker save responses of its own, and one that all save.
func checkResponsesConcurrent(t testing.TB, s responseTest) {
	shared := s.newResponse()
	s.save(t, shared)
	kit.Concurrently(t, 4, func(i int) {
		own := responseTest{s.Store, s.account, map[ownedID]*responsestore.Response{}}
		for range 10 {
			r := own.newResponse()
			own.save(t, r)
			own.save(t, shared)
			own.loadAll(t, r)
			own.loadAll(t, shared)
			if i%2 == 0 {
				own.delete(t, r.Account, r.ID)
			}
		}
	})
}
