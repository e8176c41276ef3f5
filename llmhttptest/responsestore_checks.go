package llmhttptest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/responsestore"
)

var responseChecks = []check[responseTest]{
	{
		"Unknown",
		"a response that does not exist has another error than ErrResponseNotFound, or items that do not exist are an error.",
		checkResponsesUnknown,
	},
	{"RoundTrip", "a field is not stored, items lose their order, or bodies are normalised.", checkResponsesRoundTrip},
	{"EmptyFields", "an empty field is stored as another value, or a response without items is not found.", checkResponsesEmpty},
	{"Accounts", "a response or an item of another account is found or deleted.", checkResponsesAccounts},
	{"SimilarNames", "IDs or accounts are normalised, cut, or become part of the text of a query.", checkResponsesNames},
	{"Items", "items of the input or of the output are not found by ID, or several items of one ID are returned.", checkResponsesItems},
	{
		"TurnBytes",
		"LoadTurn counts the Body, counts only the input or the output, or returns items beyond maxBytes.",
		checkResponsesTurnBytes,
	},
	{"ItemBytes", "LoadItems returns items beyond maxBytes, or counts other items of their responses.", checkResponsesItemBytes},
	{"ManyItems", "a query has a limited number of parameters.", checkResponsesManyItems},
	{"Delete", "items survive their response, or a second deletion succeeds.", checkResponsesDelete},
	{"Expiry", "expired responses or their items are found.", checkResponsesExpiry},
	{"SaveAgain", "a response that is saved again is an error, or keeps old items.", checkResponsesSaveAgain},
	{"NoSharedMemory", "the store keeps slices that SaveResponse was passed.", checkResponsesMemory},
	{"LargeResponse", "bodies have a limited size.", checkResponsesLarge},
	{"RandomCalls", "an unusual order of calls; the seed repeats it.", checkResponsesRandom},
	{
		"ConcurrentCalls",
		"a response is visible before all of its items are, or calls are not safe for concurrent use.",
		checkResponsesConcurrent,
	},
}

func checkResponsesUnknown(t testing.TB, s responseTest) {
	s.wantNoResponse(t, s.account, "resp_unknown")
	s.wantItems(t, s.account, []string{"msg_unknown"})
	s.wantItems(t, s.account, nil)
	if err := s.DeleteResponse(t.Context(), s.account, "resp_unknown"); !errors.Is(err, responsestore.ErrNotFound) {
		t.Errorf("DeleteResponse of an unknown response returned the error %v, want ErrResponseNotFound", err)
	}
}

func checkResponsesRoundTrip(t testing.TB, s responseTest) {
	r := s.newResponse()
	r.Previous = unique("resp")
	r.Expires = r.Created.Add(time.Hour)
	r.Body = []byte("{ \"b\":1.0,\n\"a\" : \"\u6a21\\u0000\\ud83d\\ude42\" , \"c\":[1e400]}")
	for i := range 30 { // so that an order by text differs
		r.Input = append(r.Input, newItem(fmt.Sprintf("%s-%d", unique("in"), i), "input"))
		r.Output = append(r.Output, newItem(fmt.Sprintf("%s-%d", unique("out"), 30-i), "output"))
	}
	s.mustSave(t, r, s.newResponse())
	s.wantResponse(t, r)
}

func checkResponsesEmpty(t testing.TB, s responseTest) {
	r := &responsestore.Response{ID: unique("resp"), Account: s.account, Created: time.Unix(0, 0), Body: []byte("{}")}
	s.mustSave(t, r)
	s.wantResponse(t, r)
	got, err := s.LoadResponse(t.Context(), s.account, r.ID)
	if err == nil && !got.Expires.IsZero() {
		t.Errorf("Expires is %v, want zero", got.Expires)
	}
}

func checkResponsesAccounts(t testing.TB, s responseTest) {
	mine, theirs := s.newResponse(), s.newResponse()
	other := unique("account")
	theirs.Account = other
	same := s.newResponse() // an ID that both have
	same.Account, same.ID = other, mine.ID
	s.mustSave(t, mine, theirs, same)
	s.wantResponse(t, mine)
	s.wantResponse(t, same)
	s.wantNoResponse(t, s.account, theirs.ID)
	s.wantItems(t, s.account, []string{theirs.Input[0].ID, theirs.Output[0].ID, mine.Output[0].ID}, mine.Output[0])
	if err := s.DeleteResponse(t.Context(), s.account, theirs.ID); !errors.Is(err, responsestore.ErrNotFound) {
		t.Errorf("DeleteResponse of another account's response returned the error %v, want ErrResponseNotFound", err)
	}
	s.wantResponse(t, theirs)
	if err := s.DeleteResponse(t.Context(), s.account, mine.ID); err != nil {
		t.Errorf("DeleteResponse returned the error %v, want nil", err)
	}
	s.wantResponse(t, same)
}

func checkResponsesNames(t testing.TB, s responseTest) {
	var saved []*responsestore.Response
	for _, name := range trickyNames() {
		r := s.newResponse()
		r.ID = name
		r.Input[0] = newItem(name, "of "+name)
		o := s.newResponse()
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
	r := s.newResponse()
	again := s.newResponse()
	again.Input = append(again.Input, r.Output[0]) // a client sends it again
	s.mustSave(t, r, again)
	s.wantResponse(t, again)
	s.wantItems(
		t,
		s.account,
		[]string{r.Output[0].ID, "msg_unknown", again.Input[0].ID, again.Output[0].ID},
		r.Output[0],
		again.Input[0],
		again.Output[0],
	)
}

func checkResponsesTurnBytes(t testing.TB, s responseTest) {
	r := s.newResponse()
	r.Body = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
	s.mustSave(t, r)
	size := len(r.Input[0].Body) + len(r.Output[0].Body)
	s.wantTurn(t, r, size)
	for _, tooFew := range []int{size - 1, len(r.Input[0].Body), len(r.Output[0].Body), 0, -1} {
		if got, err := s.LoadTurn(t.Context(), s.account, r.ID, tooFew); !errors.Is(err, responsestore.ErrItemsTooLarge) || got != nil {
			t.Errorf(
				"LoadTurn of %d bytes with the limit %d returned %v and the error %v, want nil and ErrItemsTooLarge",
				size,
				tooFew,
				got,
				err,
			)
		}
	}
}

func checkResponsesItemBytes(t testing.TB, s responseTest) {
	r, other := s.newResponse(), s.newResponse()
	r.Input = append(r.Input, newItem(unique("large"), strings.Repeat("x", 10_000)))
	s.mustSave(t, r, other)
	ids := []string{r.Input[0].ID, other.Output[0].ID, "msg_unknown"}
	size := len(r.Input[0].Body) + len(other.Output[0].Body)
	found, err := s.LoadItems(t.Context(), s.account, ids, size)
	if err != nil || len(found) != 2 {
		t.Errorf("LoadItems of %d bytes with that limit returned %s and the error %v, want both items", size, describeItems(found), err)
	}
	for _, tooFew := range []int{size - 1, len(r.Input[0].Body), 0, -1} {
		found, err := s.LoadItems(t.Context(), s.account, ids, tooFew)
		if !errors.Is(err, responsestore.ErrItemsTooLarge) || len(found) > 0 {
			t.Errorf(
				"LoadItems of %d bytes with the limit %d returned %s and the error %v, want none and ErrItemsTooLarge",
				size,
				tooFew,
				describeItems(found),
				err,
			)
		}
	}
}

func checkResponsesManyItems(t testing.TB, s responseTest) {
	r := s.newResponse()
	var ids []string
	for i := range 3000 {
		r.Input = append(r.Input, newItem(unique("in"), fmt.Sprint(i)))
		ids = append(ids, r.Input[len(r.Input)-1].ID)
	}
	s.mustSave(t, r)
	s.wantItems(t, s.account, ids, r.Input[1:]...)
	s.wantResponse(t, r)
}

func checkResponsesDelete(t testing.TB, s responseTest) {
	r, other := s.newResponse(), s.newResponse()
	other.Previous = r.ID
	other.Input = append(other.Input, r.Input[0])
	s.mustSave(t, r, other)
	if err := s.DeleteResponse(t.Context(), s.account, r.ID); err != nil {
		t.Errorf("DeleteResponse returned the error %v, want nil", err)
	}
	s.wantNoResponse(t, s.account, r.ID)
	s.wantItems(t, s.account, []string{r.Input[0].ID, r.Output[0].ID}, r.Input[0])
	s.wantResponse(t, other)
	if err := s.DeleteResponse(t.Context(), s.account, r.ID); !errors.Is(err, responsestore.ErrNotFound) {
		t.Errorf("the second DeleteResponse returned the error %v, want ErrResponseNotFound", err)
	}
}

func checkResponsesExpiry(t testing.TB, s responseTest) {
	expired, later := s.newResponse(), s.newResponse()
	expired.Expires = time.Now().Add(-time.Second).Truncate(time.Microsecond)
	later.Expires = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	s.mustSave(t, expired, later)
	s.wantNoResponse(t, s.account, expired.ID)
	s.wantItems(t, s.account, []string{expired.Output[0].ID, later.Output[0].ID}, later.Output[0])
	s.wantResponse(t, later)
}

func checkResponsesSaveAgain(t testing.TB, s responseTest) {
	r := s.newResponse()
	s.mustSave(t, r, r)
	s.wantResponse(t, r)
	changed := s.newResponse()
	changed.ID = r.ID
	s.mustSave(t, changed)
	s.wantResponse(t, changed)
	s.wantItems(t, s.account, []string{r.Input[0].ID, changed.Input[0].ID}, changed.Input[0])
}

func checkResponsesMemory(t testing.TB, s responseTest) {
	r := s.newResponse()
	passed := *r
	passed.Body = bytes.Clone(r.Body)
	passed.Input = []responsestore.Item{{ID: r.Input[0].ID, Body: bytes.Clone(r.Input[0].Body)}}
	s.mustSave(t, &passed)
	if !reflect.DeepEqual(&passed, r) {
		t.Error("SaveResponse changed the response that it was passed, want it as it was")
	}
	clear(passed.Body)
	clear(passed.Input[0].Body)
	passed.Input[0] = responsestore.Item{}
	s.wantResponse(t, r)
}

func checkResponsesLarge(t testing.TB, s responseTest) {
	r := s.newResponse()
	r.Output = append(r.Output, newItem(unique("msg"), strings.Repeat("large ", 4<<20/6)))
	s.mustSave(t, r)
	s.wantResponse(t, r)
}

// checkResponsesRandom compares the store with a map.
func checkResponsesRandom(t testing.TB, s responseTest) {
	rng := newRand(t)
	saved := make(map[string]*responsestore.Response)
	ownItems := make(map[string]string) // by response, the ID of an item that no other response has
	var ids []string
	for range 150 {
		switch n := rng.IntN(10); {
		case n < 4 && len(ids) < 90:
			r := s.newResponse()
			if len(ids) > 0 {
				if previous := saved[pick(rng, ids...)]; previous != nil {
					r.Previous = previous.ID
					r.Input = append(r.Input, previous.Output...)
				}
			}
			s.mustSave(t, r)
			saved[r.ID], ownItems[r.ID] = r, r.Input[0].ID
			ids = append(ids, r.ID)
		case len(ids) == 0:
		case n < 6:
			id := pick(rng, ids...)
			err := s.DeleteResponse(t.Context(), s.account, id)
			if found := saved[id] != nil; found != (err == nil) {
				t.Errorf("DeleteResponse returned the error %v for a response that exists: %t", err, found)
			}
			delete(saved, id)
		default:
			id := pick(rng, ids...)
			s.wantState(t, rng, saved, id)
			if saved[id] == nil {
				s.wantItems(t, s.account, []string{ownItems[id]})
			}
		}
	}
}

// wantState reports an error unless the store agrees with saved about a response
// and the items of some others.
func (s *responseTest) wantState(t testing.TB, rng *rand.Rand, saved map[string]*responsestore.Response, id string) {
	t.Helper()
	if r := saved[id]; r != nil {
		s.wantResponse(t, r)
	} else {
		s.wantNoResponse(t, s.account, id)
	}
	items := make(map[string]responsestore.Item) // by ID
	for _, r := range saved {
		for _, i := range slices.Concat(r.Input, r.Output) {
			if rng.IntN(4) == 0 {
				items[i.ID] = i
			}
		}
	}
	s.wantItems(t, s.account, slices.Collect(maps.Keys(items)), slices.Collect(maps.Values(items))...)
}

func checkResponsesConcurrent(t testing.TB, s responseTest) {
	shared := s.newResponse()
	s.mustSave(t, shared)
	runConcurrently(t, 4, func(i int) {
		for range 10 {
			r := s.newResponse()
			r.Previous = shared.ID
			if err := s.SaveResponse(t.Context(), r); err != nil {
				t.Errorf("SaveResponse returned the error %v, want nil", err)
				return
			}
			s.wantResponse(t, r)
			if err := s.SaveResponse(t.Context(), shared); err != nil {
				t.Errorf("SaveResponse of a response that others save too returned the error %v, want nil", err)
			}
			s.wantResponse(t, shared)
			if i%2 == 0 {
				if err := s.DeleteResponse(t.Context(), s.account, r.ID); err != nil {
					t.Errorf("DeleteResponse returned the error %v, want nil", err)
				}
			}
		}
	})
}
