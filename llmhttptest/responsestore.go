package llmhttptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// TestResponseStore tests a [llmhttp.ResponseStore]. It calls newStore once for
// each subtest. The stores may share a database, because each subtest uses
// accounts of its own. The store must have room for a hundred responses and for
// one of 4 MiB.
func TestResponseStore(t *testing.T, newStore func(t testing.TB) llmhttp.ResponseStore) {
	t.Helper()
	runChecks(t, responseChecks, func(t testing.TB) responseTest { return responseTest{newStore(t), unique("account")} })
}

// A responseTest is the ResponseStore that a check tests, with an account that
// is unused.
type responseTest struct {
	llmhttp.ResponseStore
	account string
}

var responseChecks = []check[responseTest]{
	withCause("Unknown", "a response that does not exist has another error than ErrResponseNotFound, or items that do not exist are an error.", checkResponsesUnknown),
	withCause("RoundTrip", "a field is not stored, items lose their order, or bodies are normalised.", checkResponsesRoundTrip),
	withCause("EmptyFields", "an empty field is stored as another value, or a response without items is not found.", checkResponsesEmpty),
	withCause("Accounts", "a response or an item of another account is found or deleted.", checkResponsesAccounts),
	withCause("SimilarNames", "IDs or accounts are normalised, cut, or become part of the text of a query.", checkResponsesNames),
	withCause("Items", "items of the input or of the output are not found by ID, or several items of one ID are returned.", checkResponsesItems),
	withCause("ManyItems", "a query has a limited number of parameters.", checkResponsesManyItems),
	withCause("Delete", "items survive their response, or a second deletion succeeds.", checkResponsesDelete),
	withCause("Expiry", "expired responses or their items are found.", checkResponsesExpiry),
	withCause("SaveAgain", "a response that is saved again is an error, or keeps old items.", checkResponsesSaveAgain),
	withCause("NoSharedMemory", "the store keeps slices that SaveResponse was passed.", checkResponsesMemory),
	withCause("LargeResponse", "bodies have a limited size.", checkResponsesLarge),
	withCause("RandomCalls", "an unusual order of calls; the seed repeats it.", checkResponsesRandom),
	withCause("ConcurrentCalls", "a response is visible before all of its items are, or calls are not safe for concurrent use.", checkResponsesConcurrent),
}

// response returns a response of the test's account with an input item and an
// output item.
func (s *responseTest) response() *llmhttp.StoredResponse {
	id := unique("resp")
	return &llmhttp.StoredResponse{
		ID: id, Account: s.account, Created: time.Now().Truncate(time.Microsecond), Body: []byte(`{"id":"` + id + `"}`),
		Input:  []llmhttp.StoredItem{item(unique("msg"), "Hi")},
		Output: []llmhttp.StoredItem{item(unique("msg"), "Hello")},
	}
}

func item(id, text string) llmhttp.StoredItem {
	return llmhttp.StoredItem{ID: id, Body: fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, text)}
}

func (s *responseTest) mustSave(t testing.TB, responses ...*llmhttp.StoredResponse) {
	t.Helper()
	for _, r := range responses {
		if err := s.SaveResponse(t.Context(), r); err != nil {
			t.Fatalf("SaveResponse of %q returned the error %v, want nil", r.ID, err)
		}
	}
}

// wantResponse reports an error unless the store returns want, and its items.
func (s *responseTest) wantResponse(t testing.TB, want *llmhttp.StoredResponse) {
	t.Helper()
	got, err := s.LoadResponse(t.Context(), want.Account, want.ID)
	if err != nil {
		t.Errorf("LoadResponse of %q returned the error %v, want nil", want.ID, err)
		return
	}
	if g, w := describeResponse(got), describeResponse(want); g != w {
		t.Errorf("LoadResponse of %q returned %s, want %s", want.ID, g, w)
	}
}

func describeResponse(r *llmhttp.StoredResponse) string {
	expires := "never"
	if !r.Expires.IsZero() {
		expires = r.Expires.UTC().Format(time.RFC3339Nano)
	}
	return clipText(fmt.Sprintf("%q of %q after %q, created %s, expires %s, body %s, input %s, output %s", r.ID, r.Account, r.Previous,
		r.Created.UTC().Format(time.RFC3339Nano), expires, r.Body, describeItems(r.Input), describeItems(r.Output)))
}

func describeItems(items []llmhttp.StoredItem) string {
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
	if r, err := s.LoadResponse(t.Context(), account, id); !errors.Is(err, llmhttp.ErrResponseNotFound) || r != nil {
		t.Errorf("LoadResponse of %q returned %v and the error %v, want nil and ErrResponseNotFound", id, r, err)
	}
}

// wantItems reports an error unless LoadItems of ids returns want, in any order.
func (s *responseTest) wantItems(t testing.TB, account string, ids []string, want ...llmhttp.StoredItem) {
	t.Helper()
	got, err := s.LoadItems(t.Context(), account, ids)
	if err != nil {
		t.Errorf("LoadItems of %d IDs returned the error %v, want nil", len(ids), err)
		return
	}
	sorted := func(items []llmhttp.StoredItem) string {
		items = slices.Clone(items)
		slices.SortFunc(items, func(a, b llmhttp.StoredItem) int { return strings.Compare(a.ID, b.ID) })
		return describeItems(items)
	}
	if g, w := sorted(got), sorted(want); g != w {
		t.Errorf("LoadItems returned %s, want %s", clipText(g), clipText(w))
	}
}

func checkResponsesUnknown(t testing.TB, s responseTest) {
	s.wantNoResponse(t, s.account, "resp_unknown")
	s.wantItems(t, s.account, []string{"msg_unknown"})
	s.wantItems(t, s.account, nil)
	if err := s.DeleteResponse(t.Context(), s.account, "resp_unknown"); !errors.Is(err, llmhttp.ErrResponseNotFound) {
		t.Errorf("DeleteResponse of an unknown response returned the error %v, want ErrResponseNotFound", err)
	}
}

func checkResponsesRoundTrip(t testing.TB, s responseTest) {
	r := s.response()
	r.Previous = unique("resp")
	r.Expires = r.Created.Add(time.Hour)
	r.Body = []byte("{ \"b\":1.0,\n\"a\" : \"\u6a21\\u0000\\ud83d\\ude42\" , \"c\":[1e400]}")
	for i := range 30 { // so that an order by text differs
		r.Input = append(r.Input, item(fmt.Sprintf("%s-%d", unique("in"), i), "input"))
		r.Output = append(r.Output, item(fmt.Sprintf("%s-%d", unique("out"), 30-i), "output"))
	}
	s.mustSave(t, r, s.response())
	s.wantResponse(t, r)
}

func checkResponsesEmpty(t testing.TB, s responseTest) {
	r := &llmhttp.StoredResponse{ID: unique("resp"), Account: s.account, Created: time.Unix(0, 0), Body: []byte("{}")}
	s.mustSave(t, r)
	s.wantResponse(t, r)
	got, err := s.LoadResponse(t.Context(), s.account, r.ID)
	if err == nil && !got.Expires.IsZero() {
		t.Errorf("Expires is %v, want zero", got.Expires)
	}
}

func checkResponsesAccounts(t testing.TB, s responseTest) {
	mine, theirs := s.response(), s.response()
	other := unique("account")
	theirs.Account = other
	same := s.response() // an ID that both have
	same.Account, same.ID = other, mine.ID
	s.mustSave(t, mine, theirs, same)
	s.wantResponse(t, mine)
	s.wantResponse(t, same)
	s.wantNoResponse(t, s.account, theirs.ID)
	s.wantItems(t, s.account, []string{theirs.Input[0].ID, theirs.Output[0].ID, mine.Output[0].ID}, mine.Output[0])
	if err := s.DeleteResponse(t.Context(), s.account, theirs.ID); !errors.Is(err, llmhttp.ErrResponseNotFound) {
		t.Errorf("DeleteResponse of another account's response returned the error %v, want ErrResponseNotFound", err)
	}
	s.wantResponse(t, theirs)
	if err := s.DeleteResponse(t.Context(), s.account, mine.ID); err != nil {
		t.Errorf("DeleteResponse returned the error %v, want nil", err)
	}
	s.wantResponse(t, same)
}

func checkResponsesNames(t testing.TB, s responseTest) {
	var saved []*llmhttp.StoredResponse
	for _, name := range names() {
		r := s.response()
		r.ID = name
		r.Input[0] = item(name, "of "+name)
		o := s.response()
		o.Account += name
		saved = append(saved, r, o)
	}
	s.mustSave(t, saved...)
	for _, r := range saved {
		s.wantResponse(t, r)
		s.wantItems(t, r.Account, []string{r.Input[0].ID}, r.Input[0])
	}
}

func checkResponsesItems(t testing.TB, s responseTest) {
	r := s.response()
	again := s.response()
	again.Input = append(again.Input, r.Output[0]) // a client sends it again
	s.mustSave(t, r, again)
	s.wantResponse(t, again)
	s.wantItems(t, s.account, []string{r.Output[0].ID, "msg_unknown", again.Input[0].ID, again.Output[0].ID}, r.Output[0], again.Input[0], again.Output[0])
}

func checkResponsesManyItems(t testing.TB, s responseTest) {
	r := s.response()
	var ids []string
	for i := range 3000 {
		r.Input = append(r.Input, item(unique("in"), fmt.Sprint(i)))
		ids = append(ids, r.Input[len(r.Input)-1].ID)
	}
	s.mustSave(t, r)
	s.wantItems(t, s.account, ids, r.Input[1:]...)
	s.wantResponse(t, r)
}

func checkResponsesDelete(t testing.TB, s responseTest) {
	r, other := s.response(), s.response()
	other.Previous = r.ID
	other.Input = append(other.Input, r.Input[0])
	s.mustSave(t, r, other)
	if err := s.DeleteResponse(t.Context(), s.account, r.ID); err != nil {
		t.Errorf("DeleteResponse returned the error %v, want nil", err)
	}
	s.wantNoResponse(t, s.account, r.ID)
	s.wantItems(t, s.account, []string{r.Input[0].ID, r.Output[0].ID}, r.Input[0])
	s.wantResponse(t, other)
	if err := s.DeleteResponse(t.Context(), s.account, r.ID); !errors.Is(err, llmhttp.ErrResponseNotFound) {
		t.Errorf("the second DeleteResponse returned the error %v, want ErrResponseNotFound", err)
	}
}

func checkResponsesExpiry(t testing.TB, s responseTest) {
	expired, later := s.response(), s.response()
	expired.Expires = time.Now().Add(-time.Second).Truncate(time.Microsecond)
	later.Expires = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	s.mustSave(t, expired, later)
	s.wantNoResponse(t, s.account, expired.ID)
	s.wantItems(t, s.account, []string{expired.Output[0].ID, later.Output[0].ID}, later.Output[0])
	s.wantResponse(t, later)
}

func checkResponsesSaveAgain(t testing.TB, s responseTest) {
	r := s.response()
	s.mustSave(t, r, r)
	s.wantResponse(t, r)
	changed := s.response()
	changed.ID = r.ID
	s.mustSave(t, changed)
	s.wantResponse(t, changed)
	s.wantItems(t, s.account, []string{r.Input[0].ID, changed.Input[0].ID}, changed.Input[0])
}

func checkResponsesMemory(t testing.TB, s responseTest) {
	r := s.response()
	passed := *r
	passed.Body = bytes.Clone(r.Body)
	passed.Input = []llmhttp.StoredItem{{ID: r.Input[0].ID, Body: bytes.Clone(r.Input[0].Body)}}
	s.mustSave(t, &passed)
	if !reflect.DeepEqual(&passed, r) {
		t.Error("SaveResponse changed the response that it was passed, want it as it was")
	}
	clear(passed.Body)
	clear(passed.Input[0].Body)
	passed.Input[0] = llmhttp.StoredItem{}
	s.wantResponse(t, r)
}

func checkResponsesLarge(t testing.TB, s responseTest) {
	r := s.response()
	r.Output = append(r.Output, item(unique("msg"), strings.Repeat("large ", 4<<20/6)))
	s.mustSave(t, r)
	s.wantResponse(t, r)
}

// checkResponsesRandom compares the store with a map.
func checkResponsesRandom(t testing.TB, s responseTest) {
	random := newRand(t)
	saved := make(map[string]*llmhttp.StoredResponse)
	questions := make(map[string]string) // the IDs of items that are in one response only
	var ids []string
	for range 150 {
		switch n := random.IntN(10); {
		case n < 4 && len(ids) < 90:
			r := s.response()
			if len(ids) > 0 {
				previous := saved[ids[random.IntN(len(ids))]]
				if previous != nil {
					r.Previous = previous.ID
					r.Input = append(r.Input, previous.Output...)
				}
			}
			s.mustSave(t, r)
			saved[r.ID], questions[r.ID] = r, r.Input[0].ID
			ids = append(ids, r.ID)
		case len(ids) == 0:
		case n < 6:
			id := ids[random.IntN(len(ids))]
			err := s.DeleteResponse(t.Context(), s.account, id)
			if found := saved[id] != nil; found != (err == nil) {
				t.Errorf("DeleteResponse returned the error %v for a response that exists: %t", err, found)
			}
			delete(saved, id)
		default:
			id := ids[random.IntN(len(ids))]
			s.wantState(t, random, saved, id)
			if saved[id] == nil {
				s.wantItems(t, s.account, []string{questions[id]})
			}
		}
	}
}

// wantState reports an error unless the store agrees with saved about a response
// and the items of some others.
func (s *responseTest) wantState(t testing.TB, random *rand.Rand, saved map[string]*llmhttp.StoredResponse, id string) {
	t.Helper()
	if r := saved[id]; r != nil {
		s.wantResponse(t, r)
	} else {
		s.wantNoResponse(t, s.account, id)
	}
	items := make(map[string]llmhttp.StoredItem)
	var ids []string
	for _, r := range saved {
		for _, i := range slices.Concat(r.Input, r.Output) {
			if random.IntN(4) == 0 && items[i.ID].ID == "" {
				items[i.ID] = i
				ids = append(ids, i.ID)
			}
		}
	}
	var want []llmhttp.StoredItem
	for _, i := range items {
		want = append(want, i)
	}
	s.wantItems(t, s.account, ids, want...)
}

func checkResponsesConcurrent(t testing.TB, s responseTest) {
	shared := s.response()
	s.mustSave(t, shared)
	runConcurrently(t, 4, func(i int) {
		ctx := context.WithoutCancel(t.Context())
		for range 10 {
			r := s.response()
			r.Previous = shared.ID
			if err := s.SaveResponse(ctx, r); err != nil {
				t.Errorf("SaveResponse returned the error %v, want nil", err)
				return
			}
			got, err := s.LoadResponse(ctx, s.account, r.ID)
			if err != nil || describeResponse(got) != describeResponse(r) {
				t.Errorf("LoadResponse returned %v and the error %v, want what was saved", got, err)
			}
			if err := s.SaveResponse(ctx, shared); err != nil {
				t.Errorf("SaveResponse of a response that others save too returned the error %v, want nil", err)
			}
			if got, err := s.LoadResponse(ctx, s.account, shared.ID); err != nil || describeResponse(got) != describeResponse(shared) {
				t.Errorf("LoadResponse of the shared response returned %v and the error %v, want what was saved", got, err)
			}
			if i%2 == 0 {
				if err := s.DeleteResponse(ctx, s.account, r.ID); err != nil {
					t.Errorf("DeleteResponse returned the error %v, want nil", err)
				}
			}
		}
	})
}
