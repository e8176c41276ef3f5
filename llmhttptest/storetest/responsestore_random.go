// Random calls of a store of responses, and what they must return.

package storetest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/responsestore"
)

// A responseCall is a call of a method of a Store with the Account and the ID of the Response. Its
// accounts and IDs are what follows the account of the test.
type responseCall struct {
	method string
	responsestore.Response
	IDs     []string // for LoadItems
	Limited bool     // whether maxBytes is Spare bytes more than LoadTurn or LoadItems is to load
	Spare   int
}

var responseSequences = kit.Sequences[responseTest, responseCall]{
	Count: 90, Generate: randomResponseCalls, Begin: beginResponseCalls, Simpler: kit.SimplerEach(kit.SimplerFields[responseCall]),
	Describe: func(c responseCall) string { return c.method + kit.Describe(c) },
}

func beginResponseCalls(t testing.TB, s responseTest) func(responseCall) {
	s = newResponseTest(s.Store)
	return func(c responseCall) {
		r := cloneResponse(&c.Response)
		r.Account, r.ID = s.account+r.Account, s.account+r.ID
		// maxBytes is negative only if there is something to refuse.
		maxBytes := func(size int) int {
			switch {
			case !c.Limited:
				return 1 << 30
			case size == 0:
				return 0
			}
			return size + c.Spare
		}
		switch c.method {
		case "SaveResponse":
			completeResponse(r, s.account)
			s.save(t, r)
		case "DeleteResponse":
			s.delete(t, r.Account, r.ID)
		case "LoadResponse":
			s.load(t, r.Account, r.ID)
		case "LoadTurn":
			size := 0
			if saved := s.find(r.Account, r.ID); saved != nil {
				size = turnBytes(saved)
			}
			s.loadTurn(t, r.Account, r.ID, maxBytes(size))
		case "LoadItems":
			var ids []string
			for _, id := range c.IDs {
				ids = append(ids, s.account+id)
			}
			size, _ := itemBytes(s.items(r.Account), ids)
			s.loadItems(t, r.Account, ids, maxBytes(size))
		}
	}
}

// completeResponse sets fields that must not be empty, and adds prefix to the IDs of items.
func completeResponse(r *responsestore.Response, prefix string) {
	if r.Created.IsZero() {
		r.Created = noon
	}
	bodies := []*[]byte{&r.Body}
	for _, items := range [][]responsestore.Item{r.Input, r.Output} {
		for i := range items {
			items[i].ID = prefix + items[i].ID
			bodies = append(bodies, &items[i].Body)
		}
	}
	for _, body := range bodies {
		if len(*body) == 0 {
			*body = []byte("{}")
		}
	}
}

// randomResponseCalls returns calls with few IDs, so that responses replace others and have items
// of others. An order of items by ID differs from theirs.
func randomResponseCalls(rng *rand.Rand, _ responseTest, sequence int) []responseCall {
	accounts, ids, itemIDs := []string{"", " of another"}[:1+sequence%2], []string{"a", "b"}, []string{"m1", "m2", "m3", "m10"}
	switch names := similarNames(sequence / 3); sequence % 3 {
	case 1:
		ids, itemIDs = names, names
	case 2:
		accounts = append(names, "")
	}
	methods := []string{
		"SaveResponse", "SaveResponse", "LoadResponse", "LoadResponse", "LoadTurn", "LoadTurn", "LoadItems", "LoadItems", "DeleteResponse",
	}
	calls := make([]responseCall, 24)
	for i := range calls {
		c := &calls[i]
		c.method = kit.Pick(rng, methods...)
		switch c.method {
		case "SaveResponse":
			c.Response = randomResponse(rng, itemIDs)
		case "LoadItems":
			for _, k := range rng.Perm(len(itemIDs))[:rng.IntN(len(itemIDs)+1)] {
				c.IDs = append(c.IDs, itemIDs[k])
			}
			fallthrough
		case "LoadTurn":
			c.Limited, c.Spare = rng.IntN(3) > 0, kit.Pick(rng, 0, -1, -1, -1<<20)
		}
		c.Account, c.ID = kit.Pick(rng, accounts...), kit.Pick(rng, ids...)
	}
	return calls
}

// randomResponse returns a response whose times are so far away that the duration of the test does
// not matter.
func randomResponse(rng *rand.Rand, itemIDs []string) responsestore.Response {
	now := time.Now().Truncate(time.Microsecond)
	const unusual = "{ \"b\":1.0,\n\"a\" : \"\u6a21\\u0000\\ud83d\\ude42\" , \"c\":[1e400]}"
	body := func() []byte { return []byte(kit.Pick(rng, "", `""`, strings.Repeat("1", 50), unusual, unusual)) }
	r := responsestore.Response{
		Previous: kit.Pick(rng, "", "a", "unknown"), Created: kit.Pick(rng, now, noon, time.Unix(0, 0)),
		Expires: kit.Pick(rng, time.Time{}, time.Time{}, time.Time{}, now.Add(-time.Second), now.Add(time.Hour)), Body: body(),
	}
	for _, items := range []*[]responsestore.Item{&r.Input, &r.Output} {
		for range rng.IntN(5) {
			*items = append(*items, responsestore.Item{ID: kit.Pick(rng, itemIDs...), Body: body()})
		}
	}
	return r
}
