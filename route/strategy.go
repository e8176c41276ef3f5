// The strategies, which select one of several targets.

package route

import (
	"cmp"
	"slices"
)

// applyStrategy returns the one of candidates that the strategy selects for a request of a
// session. There must be at least one. It overwrites candidates.
func (p *pool) applyStrategy(candidates []int, s session) int {
	switch {
	case p.strategy == InOrder:
		return candidates[0]
	case p.strategy == Affinity && s != 0:
		return p.pickForSession(candidates, s)
	case p.strategy == LeastInFlight:
		compare := func(a, b int) int { return compareLoad(p.load(a), p.load(b)) }
		least := slices.MinFunc(candidates, compare)
		candidates = slices.DeleteFunc(candidates, func(i int) bool { return compare(i, least) > 0 })
	}
	// Smooth weighted round-robin: the weight of each candidate is added to its
	// credit. The one with the most credit is chosen, and the sum of the weights
	// is subtracted from its credit. This spreads the requests to a target as
	// evenly as possible.
	chosen, total := candidates[0], 0
	for _, i := range candidates {
		p.states[i].credit += p.targets[i].weight
		total += p.targets[i].weight
		if p.states[i].credit > p.states[chosen].credit {
			chosen = i
		}
	}
	p.states[chosen].credit -= total
	return chosen
}

// A load is the number of requests in flight to a target with its weight.
type load struct{ inFlight, weight int }

func (p *pool) load(i int) load { return load{p.states[i].inFlight, p.targets[i].weight} }

// compareLoad compares a and b by the number of requests in flight that each would
// have with one more request, divided by its weight.
func compareLoad(a, b load) int {
	return cmp.Compare(int64(a.inFlight+1)*int64(b.weight), int64(b.inFlight+1)*int64(a.weight))
}
