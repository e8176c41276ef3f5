package llmfake

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
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

	Delay time.Duration // zero means 10 seconds
}

// A chaosState is the Chaos of a Server. The lock of the Server guards it.
type chaosState struct {
	Chaos
	seen map[[32]byte]uint64 // how often each request has come
}

// Chaos makes requests fail at random from now on. The zero Chaos ends that.
//
// A request that fails before there is a reply takes none from [Server.Reply], so that the
// client's second try gets it. One whose reply breaks off has taken it: use [Server.Always]
// with CutStream and Malformed.
func (s *Server) Chaos(c Chaos) {
	if c.Seed == 0 {
		c.Seed = rand.Uint64() | 1
	}
	if c.Delay == 0 {
		c.Delay = 10 * time.Second
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chaos = &chaosState{Chaos: c, seen: make(map[[32]byte]uint64)}
}

// drawChaos returns the random numbers for a request, and the Chaos, or nil if there is none.
func (s *Server) drawChaos(r *Request) (*Chaos, *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chaos == nil || r.Method != http.MethodPost {
		return nil, nil
	}
	sum := sha256.Sum256(append([]byte(r.Path+"\n"), r.Body...))
	s.chaos.seen[sum]++
	return new(s.chaos.Chaos), rand.New(rand.NewPCG(s.chaos.Seed, binary.LittleEndian.Uint64(sum[:])+s.chaos.seen[sum]))
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
			return &llmhttp.Error{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
				Message: "Rate limit reached. Please try again in 1s.", RetryAfter: time.Second}
		}},
		{c.ServerError, "ServerError", func() error {
			return llmhttp.Errorf(http.StatusInternalServerError, "", "The server had an error while processing your request. Sorry about that!")
		}},
		{c.Overloaded, "Overloaded", func() error {
			return llmhttp.Errorf(http.StatusServiceUnavailable, "", "The engine is currently overloaded, please try again later.")
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
			timer := time.NewTimer(c.Delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
			}
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

// A Pace is how fast replies to chats arrive, for tests of agents and gateways under load. The
// zero Pace has no delays.
type Pace struct {
	FirstToken      time.Duration // until the first piece of a reply
	TokensPerSecond float64       // pieces of a reply after the first. Zero or negative means no limit
	Jitter          float64       // the part, from 0 to 1, by which each delay differs at random, up or down
}

// Pace sets how fast replies to chats arrive from now on.
func (s *Server) Pace(p Pace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace = p
}

// A paceState is the pace of one reply.
type paceState struct {
	Pace
	begun bool
}

// paceNow returns the pace for a reply, or nil if there is none.
func (s *Server) paceNow() *paceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == (Pace{}) {
		return nil
	}
	return &paceState{Pace: s.pace}
}

// next returns how long to wait before the next piece.
func (p *paceState) next() time.Duration {
	if p == nil {
		return 0
	}
	d := p.FirstToken
	if p.begun {
		d = 0
		if p.TokensPerSecond > 0 {
			d = time.Duration(float64(time.Second) / p.TokensPerSecond)
		}
	}
	p.begun = true
	return time.Duration(float64(d) * (1 + p.Jitter*(2*rand.Float64()-1)))
}
