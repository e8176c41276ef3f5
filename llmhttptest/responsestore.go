package llmhttptest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/responsestore"
)

// TestResponseStore tests a [responsestore.Store]. It calls newStore once for
// each subtest. The stores may share a database, because each subtest uses
// accounts of its own. An account must have room for a hundred responses and for
// one of 4 MiB.
func TestResponseStore(t *testing.T, newStore func(t testing.TB) responsestore.Store) {
	t.Helper()
	runChecks(t, responseChecks, func(t testing.TB) responseTest { return responseTest{newStore(t), unique("account")} })
}

// A responseTest is the ResponseStore that a check tests, with an account that is unused.
type responseTest struct {
	responsestore.Store
	account string
}

// newResponse returns a response of the test's account with an input item and an output
// item.
func (s *responseTest) newResponse() *responsestore.Response {
	id := unique("resp")
	return &responsestore.Response{
		ID: id, Account: s.account, Created: time.Now().Truncate(time.Microsecond), Body: []byte(`{"id":"` + id + `"}`),
		Input:  []responsestore.Item{newItem(unique("msg"), "Hi")},
		Output: []responsestore.Item{newItem(unique("msg"), "Hello")},
	}
}

func newItem(id, text string) responsestore.Item {
	return responsestore.Item{ID: id, Body: fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, text)}
}

func (s *responseTest) mustSave(t testing.TB, responses ...*responsestore.Response) {
	t.Helper()
	for _, r := range responses {
		if err := s.SaveResponse(t.Context(), r); err != nil {
			t.Fatalf("SaveResponse of %q returned the error %v, want nil", r.ID, err)
		}
	}
}

// wantResponse reports an error unless the store returns want, and its items.
func (s *responseTest) wantResponse(t testing.TB, want *responsestore.Response) {
	t.Helper()
	got, err := s.LoadResponse(t.Context(), want.Account, want.ID)
	if err != nil {
		t.Errorf("LoadResponse of %q returned the error %v, want nil", want.ID, err)
		return
	}
	if g, w := describeResponse(got), describeResponse(want); g != w {
		t.Errorf("LoadResponse of %q returned %s, want %s", want.ID, g, w)
	}
	s.wantTurn(t, want, math.MaxInt)
}

// wantTurn reports an error unless LoadTurn returns want without its Body.
func (s *responseTest) wantTurn(t testing.TB, want *responsestore.Response, maxBytes int) {
	t.Helper()
	got, err := s.LoadTurn(t.Context(), want.Account, want.ID, maxBytes)
	if err != nil {
		t.Errorf("LoadTurn of %q returned the error %v, want nil", want.ID, err)
		return
	}
	turn := *want
	turn.Body = nil
	if g, w := describeResponse(got), describeResponse(&turn); g != w {
		t.Errorf("LoadTurn of %q returned %s, want %s", want.ID, g, w)
	}
}

func describeResponse(r *responsestore.Response) string {
	expires := "never"
	if !r.Expires.IsZero() {
		expires = r.Expires.UTC().Format(time.RFC3339Nano)
	}
	return clipText(fmt.Sprintf("%q of %q after %q, created %s, expires %s, body %s, input %s, output %s", r.ID, r.Account, r.Previous,
		r.Created.UTC().Format(time.RFC3339Nano), expires, r.Body, describeItems(r.Input), describeItems(r.Output)))
}

func describeItems(items []responsestore.Item) string {
	var b strings.Builder
	for _, i := range items {
		fmt.Fprintf(&b, "[%q %s]", i.ID, i.Body)
	}
	return b.String()
}

// clipText shortens a long text, and adds its length so that two that differ at
// their ends do not become the same.
func clipText(s string) string {
	if len(s) <= 2000 {
		return s
	}
	return fmt.Sprintf("%s... of %d bytes with the hash %s", s[:2000], len(s), llmhttp.HashSecret(s))
}

func (s *responseTest) wantNoResponse(t testing.TB, account, id string) {
	t.Helper()
	if r, err := s.LoadResponse(t.Context(), account, id); !errors.Is(err, responsestore.ErrNotFound) || r != nil {
		t.Errorf("LoadResponse of %q returned %v and the error %v, want nil and ErrResponseNotFound", id, r, err)
	}
	if r, err := s.LoadTurn(t.Context(), account, id, math.MaxInt); !errors.Is(err, responsestore.ErrNotFound) || r != nil {
		t.Errorf("LoadTurn of %q returned %v and the error %v, want nil and ErrResponseNotFound", id, r, err)
	}
}

// wantItems reports an error unless LoadItems of ids returns want, in any order.
func (s *responseTest) wantItems(t testing.TB, account string, ids []string, want ...responsestore.Item) {
	t.Helper()
	got, err := s.LoadItems(t.Context(), account, ids, math.MaxInt)
	if err != nil {
		t.Errorf("LoadItems of %d IDs returned the error %v, want nil", len(ids), err)
		return
	}
	sorted := func(items []responsestore.Item) string {
		items = slices.Clone(items)
		slices.SortFunc(items, func(a, b responsestore.Item) int { return strings.Compare(a.ID, b.ID) })
		return describeItems(items)
	}
	if g, w := sorted(got), sorted(want); g != w {
		t.Errorf("LoadItems returned %s, want %s", clipText(g), clipText(w))
	}
}
