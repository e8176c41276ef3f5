// Sessions whose requests stay at one target.

package route

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"math"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A session is a hash of what tells that requests belong together. It is zero if nothing does. It
// is the same in all processes.
type session uint64

// newSession returns the session of a request of an account with the given body: see [Affinity].
func newSession(ctx context.Context, account string, body any) session {
	if chat, ok := body.(*llm.ChatRequest); ok {
		var key string
		if json.Unmarshal(chat.Extra["prompt_cache_key"], &key) == nil && key != "" {
			return hashSession(account, "key", key)
		}
	}
	if info := llmhttp.RequestInfoFrom(ctx); info != nil && info.Conversation != "" {
		return hashSession(account, "conversation", info.Conversation)
	}
	if named, ok := body.(interface{ EndUser() string }); ok {
		if user := named.EndUser(); user != "" {
			return hashSession(account, "user", user)
		}
	}
	return 0
}

// hashSession returns the session with this ID, which is another one in each account.
func hashSession(account, kind, id string) session {
	return session(hashTexts(account, kind, id)) | 1 // not zero
}

func hashTexts(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// score returns how well a target suits the session. A session belongs to the target with the
// highest score, and to the next one without that target. A share of all sessions belongs
// to each target that is proportional to its weight (weighted rendezvous hashing).
func (s session) score(t *target) float64 {
	x := uint64(s) ^ t.hash
	for range 2 { // the hashes of similar texts differ in few bits
		x ^= x >> 32
		x *= 0xd6e8feb86659fd93
	}
	x ^= x >> 32
	uniform := (float64(x>>11) + 0.5) / (1 << 53) // between 0 and 1
	return -float64(t.weight) / math.Log(uniform)
}

// pickForSession returns the one of candidates that suits the session best and is not overloaded.
func (p *pool) pickForSession(candidates []int, s session) int {
	all := load{inFlight: 1} // with one more request
	for _, i := range candidates {
		all.inFlight += p.states[i].inFlight
		all.weight += p.targets[i].weight
	}
	chosen, best := candidates[0], math.Inf(-1)
	for _, i := range candidates {
		if score := s.score(p.targets[i]); score > best && !p.load(i).exceeds(all) {
			chosen, best = i, score
		}
	}
	return chosen
}

// minOverload is the number of requests in flight up to which a target is not overloaded.
const minOverload = 8

// exceeds reports whether a target with the load l would, with one more request, have more than
// one and a half times its share of all requests. Some target has less than its share.
func (l load) exceeds(all load) bool {
	n := l.inFlight + 1
	return n > minOverload && 2*int64(n)*int64(all.weight) > 3*int64(all.inFlight)*int64(l.weight)
}
