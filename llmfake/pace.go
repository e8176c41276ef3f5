// Load profiles.

package llmfake

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Pace is how fast replies to chats arrive: a load profile for tests of agents and gateways.
// Together with [Chaos], which adds errors, it describes a server under load. The zero Pace has no
// delays.
//
//	srv.Pace(llmfake.Pace{FirstToken: 400 * time.Millisecond, TokensPerSecond: 60, Jitter: .3})
//	srv.Chaos(llmfake.Chaos{RateLimit: .02, Overloaded: .01, CutStream: .005})
//
// A whole reply takes as long as a stream. The delays depend on the seed and on the request, but not
// on when it comes, as the faults of Chaos.
type Pace struct {
	Seed            uint64        // of the jitter. Zero means a random seed, which is logged if the test fails
	FirstToken      time.Duration // until the first piece of a reply. Zero and negative mean none
	TokensPerSecond float64       // pieces of a reply after the first. Zero or negative means no limit
	Jitter          float64       // the part, from 0 to 1, by which each delay differs at random, up or down
}

// check returns an error with the name of the field that is wrong, or nil.
func (p *Pace) check() error {
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		return at("Jitter", fmt.Errorf("it is a part from 0 to 1, and not %v", p.Jitter))
	}
	return nil
}

// Pace sets how fast replies to chats arrive from now on. A Pace whose Jitter is none ends the test.
func (s *Server) Pace(p Pace) {
	s.t.Helper()
	if err := p.check(); err != nil {
		s.t.Fatalf("llmfake: %v", at("Pace", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace = newPaceState(p)
}

// A paceState is the Pace of a Server. The lock of the Server guards it.
type paceState struct {
	Pace
	draws draws
}

func newPaceState(p Pace) *paceState {
	if p == (Pace{Seed: p.Seed}) {
		return nil
	}
	p.Seed = seedOrRandom(p.Seed)
	return &paceState{Pace: p, draws: draws{seed: p.Seed}}
}

// A replyPace is the pace of one reply. A nil replyPace has no delays.
type replyPace struct {
	Pace
	random *rand.Rand
	begun  bool
}

// paceOf returns the pace for the reply to a request.
func (s *Server) paceOf(r *Request) *replyPace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == nil {
		return nil
	}
	return &replyPace{Pace: s.pace.Pace, random: s.pace.draws.next(r)}
}

// next returns how long to wait before the next piece.
func (p *replyPace) next() time.Duration {
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
	return time.Duration(float64(d) * (1 + p.Jitter*(2*p.random.Float64()-1)))
}
