package route

import (
	"cmp"
	"slices"
)

// applyStrategy returns the one of candidates that the strategy selects. There must be at
// least one. It overwrites candidates.
func (p *pool) applyStrategy(candidates []int) int {
	switch p.strategy {
	case InOrder:
		return candidates[0]
	case LeastInFlight:
		load := func(a, b int) int { return compareLoad(&p.states[a], &p.states[b]) }
		least := slices.MinFunc(candidates, load)
		candidates = slices.DeleteFunc(candidates, func(i int) bool { return load(i, least) > 0 })
	}
	// Smooth weighted round-robin: the weight of each candidate is added to its
	// credit. The one with the most credit is chosen, and the sum of the weights
	// is subtracted from its credit. This spreads the requests to a target as
	// evenly as possible.
	best, total := &p.states[candidates[0]], 0
	chosen := candidates[0]
	for _, i := range candidates {
		st := &p.states[i]
		st.credit += st.weight
		total += st.weight
		if st.credit > best.credit {
			best, chosen = st, i
		}
	}
	best.credit -= total
	return chosen
}

// compareLoad compares a and b by the number of requests in flight that each would
// have with one more request, divided by its weight.
func compareLoad(a, b *targetState) int {
	return cmp.Compare(int64(a.inFlight+1)*int64(b.weight), int64(b.inFlight+1)*int64(a.weight))
}
