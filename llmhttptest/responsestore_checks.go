package llmhttptest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/responsestore"
)

// responseChecks test what random calls hardly meet: all names, large responses, and other calls at
// the same time.
var responseChecks = []check[responseTest]{
	{"SimilarNames", "IDs or accounts are normalised, cut, or become part of the text of a query.", checkResponsesNames},
	{"LargeResponse", "a query has a limited number of parameters, or bodies have a limited size.", checkResponsesLarge},
	{
		"ConcurrentCalls",
		"a response is visible before all of its items are, or calls are not safe for concurrent use.",
		checkResponsesConcurrent,
	},
}

func checkResponsesNames(t testing.TB, s responseTest) {
	for _, name := range trickyNames() {
		r, o := s.newResponse(), s.newResponse()
		r.ID = name
		r.Input[0] = responsestore.Item{ID: name, Body: fmt.Appendf(nil, "%q", "of "+name)}
		o.Account += name
		s.save(t, r)
		s.save(t, o)
	}
	for _, r := range s.saved {
		if s.loadAll(t, r); t.Failed() {
			return
		}
	}
}

func checkResponsesLarge(t testing.TB, s responseTest) {
	many, large := s.newResponse(), s.newResponse()
	for i := range 3000 {
		many.Input = append(many.Input, responsestore.Item{ID: unique("in"), Body: fmt.Append(nil, i)})
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
	runConcurrently(t, 4, func(i int) {
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
