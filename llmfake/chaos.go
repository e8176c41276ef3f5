// Faults at random, drawn from the seed, the request and how often that has come, so that the order of
// concurrent requests does not matter.

package llmfake

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// Chaos makes requests fail at random. The fields other than Seed and Delay are probabilities
// from 0 to 1 of one fault each; their sum must not exceed 1. A request for a model gets at most
// one of these faults. Other requests, such as those for the list of models, get none.
//
// The faults depend on the seed, on what a request contains, and on how often the same request
// has come, but not on when it comes: a test that sends its requests concurrently gets the same
// faults each time.
type Chaos struct {
	Seed uint64 // of the random numbers. Zero means a random seed, which is logged if the test fails

	RateLimit   float64 // 429 with Retry-After: 1
	ServerError float64 // 500
	Overloaded  float64 // 503, or 529 in the Messages API
	HTML        float64 // 502 with a page of a proxy
	Cut         float64 // the connection is closed before there is a response
	CutStream   float64 // the connection is lost after 1 to 8 events, or within the body of a whole reply
	Malformed   float64 // the same place has JSON that is incomplete
	Slow        float64 // the reply begins after Delay

	Delay time.Duration // of Slow. Zero means 10 seconds; negative means none
}

// check returns an error with the name of the field that is wrong, or nil.
func (c *Chaos) check() error {
	sum := 0.
	for _, p := range []struct {
		name  string
		value float64
	}{
		{"RateLimit", c.RateLimit}, {"ServerError", c.ServerError}, {"Overloaded", c.Overloaded}, {"HTML", c.HTML}, {"Cut", c.Cut},
		{"CutStream", c.CutStream}, {"Malformed", c.Malformed}, {"Slow", c.Slow},
	} {
		if !(p.value >= 0 && p.value <= 1) {
			return at(p.name, fmt.Errorf("a probability is from 0 to 1, and not %v", p.value))
		}
		sum += p.value
	}
	if sum > 1+1e-9 { // sums such as .1 + .2 + .7 are not exact
		return fmt.Errorf("the probabilities must not be more than 1 together, as %v is", sum)
	}
	return nil
}

// A chaosState is the Chaos of a Server. The lock of the Server guards it.
type chaosState struct {
	Chaos
	draws draws
}

// Chaos makes requests fail at random from now on. The zero Chaos ends that. A probability that is
// none ends the test.
//
// A request that fails before there is a reply takes none from [Server.Reply], so that the
// client's second try gets it. One whose reply breaks off has taken it: use [Server.Always]
// with CutStream and Malformed.
func (s *Server) Chaos(c Chaos) {
	s.t.Helper()
	if err := c.check(); err != nil {
		s.t.Fatalf("llmfake: %v", at("Chaos", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chaos = newChaosState(c)
}

func newChaosState(c Chaos) *chaosState {
	if c == (Chaos{Seed: c.Seed, Delay: c.Delay}) {
		return nil
	}
	c.Seed = seedOrRandom(c.Seed)
	c.Delay = cmp.Or(c.Delay, 10*time.Second)
	return &chaosState{Chaos: c, draws: draws{seed: c.Seed}}
}

// A draws gives random numbers to requests. They depend on the seed, the request, and how often it
// has come. The lock of the Server guards it.
type draws struct {
	seed uint64
	seen map[[32]byte]uint64 // how often each request has come
}

// next returns the random numbers for a request.
func (d *draws) next(r *Request) *rand.Rand {
	if d.seen == nil {
		d.seen = make(map[[32]byte]uint64)
	}
	sum := sha256.Sum256(append([]byte(r.Path+"\n"), r.Body...))
	d.seen[sum]++
	return rand.New(rand.NewPCG(d.seed, binary.LittleEndian.Uint64(sum[:])+d.seen[sum]))
}

// seedOrRandom returns seed, or a random one if that is 0.
func seedOrRandom(seed uint64) uint64 {
	if seed == 0 {
		return rand.Uint64() | 1
	}
	return seed
}

// drawChaos returns the random numbers for a request, and the Chaos, or nil if there is none.
func (s *Server) drawChaos(r *Request) (*Chaos, *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chaos == nil || r.Method != http.MethodPost {
		return nil, nil
	}
	return new(s.chaos.Chaos), s.chaos.draws.next(r)
}

// applyChaos decides what becomes of a request. An error is its reply.
func (s *Server) applyChaos(ex *exchange, r *http.Request) error {
	c, random := s.drawChaos(ex.request)
	if c == nil {
		return nil
	}
	faults := []struct {
		probability float64
		name        string
		apply       func() error
	}{
		{c.RateLimit, "RateLimit", func() error {
			return &llm.Error{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
				Message: "Rate limit reached. Please try again in 1s.", RetryAfter: time.Second}
		}},
		{c.ServerError, "ServerError", func() error {
			return llm.Errorf(
				http.StatusInternalServerError,
				"",
				"The server had an error while processing your request. Sorry about that!",
			)
		}},
		{c.Overloaded, "Overloaded", func() error {
			return llm.Errorf(http.StatusServiceUnavailable, "", "The engine is currently overloaded, please try again later.")
		}},
		{c.HTML, "HTML", func() error {
			ex.out.setRaw(htmlPage(http.StatusBadGateway))
			return errMarker
		}},
		{c.Cut, "Cut", func() error {
			ex.out.setEnd(endCut)
			return errMarker
		}},
		{c.CutStream, "CutStream", func() error {
			ex.out.setEnd(endCut)
			ex.out.stopAfter = 1 + random.IntN(8)
			return nil
		}},
		{c.Malformed, "Malformed", func() error {
			ex.out.setEnd(endMalformed)
			ex.out.stopAfter = 1 + random.IntN(8)
			return nil
		}},
		{c.Slow, "Slow", func() error {
			modelreply.Sleep(r.Context(), c.Delay)
			return nil
		}},
	}
	u := random.Float64()
	for _, f := range faults {
		if u -= f.probability; u < 0 {
			s.setReply(r.Context(), "Chaos."+f.name)
			return f.apply()
		}
	}
	return nil
}
