package llm

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/lifetime"
	"github.com/llmhttp/llmhttp/internal/saturating"
)

// CacheWrites are numbers of tokens that were written to a prompt cache, by how long the cache keeps
// them, such as 5 minutes or an hour. In JSON they are an object such as {"5m":100,"1h":200}; other
// units are s and d.
//
// A lifetime is a positive number of whole seconds. Other lifetimes, and numbers that are zero or
// negative, are ignored. Sums, and what is recorded of a request, have the 8 shortest lifetimes. A CacheWrites that was
// assigned to a field is shared by copies of the struct and is not changed any more: methods that add
// to it assign another one.
type CacheWrites map[time.Duration]int64

// maxLifetimes is how many lifetimes sums keep. These are the shortest ones, so that a sum does not
// depend on the order in which it is added up.
const maxLifetimes = 8

// All returns what w has, the shortest lifetimes first, without what is ignored.
func (w CacheWrites) All() iter.Seq2[time.Duration, int64] {
	return func(yield func(time.Duration, int64) bool) {
		if len(w) == 0 {
			return
		}
		for i, d := range slices.Sorted(w.valid()) {
			if i == maxLifetimes || !yield(d, w[d]) {
				return
			}
		}
	}
}

// valid returns the lifetimes that are not ignored, in any order.
func (w CacheWrites) valid() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for d, n := range w {
			if lifetime.IsValid(d) && n > 0 && !yield(d) {
				return
			}
		}
	}
}

// normal returns what All has, with numbers of at most most; nil if that is nothing.
func (w CacheWrites) normal(most int64) CacheWrites {
	var kept CacheWrites
	for d, n := range w.All() {
		kept = kept.with(d, min(n, most))
	}
	return kept
}

// with sets the number of a lifetime in w, which is changed unless it is nil.
func (w CacheWrites) with(d time.Duration, n int64) CacheWrites {
	if w == nil {
		w = make(CacheWrites, 1)
	}
	w[d] = n
	return w
}

// Total returns the sum of the numbers.
func (w CacheWrites) Total() (sum int64) {
	for _, n := range w.All() {
		sum = saturating.Add(sum, n)
	}
	return sum
}

// Plus returns the sum of w and other.
func (w CacheWrites) Plus(other CacheWrites) CacheWrites {
	if len(other) == 0 {
		return w
	}
	sum := w.normal(math.MaxInt64)
	for d, n := range other.All() {
		sum = sum.with(d, saturating.Add(sum[d], n))
	}
	return sum.normal(math.MaxInt64)
}

// Minus returns how much more w is than other. Numbers that are less are zero.
func (w CacheWrites) Minus(other CacheWrites) CacheWrites {
	if len(w) == 0 || len(other) == 0 {
		return w
	}
	rest := maps.Clone(w)
	for d, n := range other.All() {
		rest[d] -= n
	}
	return rest.normal(math.MaxInt64)
}

// atMost returns w with a sum of at most total. The longest lifetimes, which cost the most, keep their
// numbers.
func (w CacheWrites) atMost(total int64) CacheWrites {
	if w.Total() <= total {
		return w
	}
	kept := make(CacheWrites, len(w))
	for _, d := range slices.Backward(slices.Sorted(w.valid())) {
		kept[d] = min(w[d], total)
		total -= kept[d]
	}
	return kept.normal(math.MaxInt64)
}

// MarshalJSON encodes w as an object.
func (w CacheWrites) MarshalJSON() ([]byte, error) {
	return w.appendObject(nil, lifetime.Format), nil
}

// appendObject appends w as an object whose members are named by name.
func (w CacheWrites) appendObject(b []byte, name func(time.Duration) string) []byte {
	b = append(b, '{')
	for d, n := range w.All() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `"%s":%d`, name(d), n)
	}
	return append(b, '}')
}

// UnmarshalJSON decodes an object.
func (w *CacheWrites) UnmarshalJSON(data []byte) error {
	var numbers map[string]int64
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	var read CacheWrites
	for name, n := range numbers {
		d, ok := lifetime.Parse(name)
		if !ok {
			return fmt.Errorf("llmhttp: %q is not how long a cache keeps tokens: want a number of s, m, h or d, such as 5m", name)
		}
		read = read.with(d, saturating.Add(read[d], n))
	}
	*w = read.normal(math.MaxInt64)
	return nil
}

// The members of details of prompts that tell cache writes by their lifetime: LiteLLM's, which has a
// member for each lifetime, and one for an hour.
const (
	cacheWritesMember  = "cache_creation_token_details"
	cacheWrite1hMember = "cache_write_1h_tokens"
)

// cacheWritesField and cacheWrite1hField may tell the same, so that the larger number counts.
var (
	cacheWritesField = jsonwire.Func(cacheWritesMember, (*PromptTokensDetails).decodeCacheWrites,
		func(p *PromptTokensDetails, b []byte) ([]byte, error) {
			return p.CacheWrites.appendObject(b, lifetime.TokensName), nil
		}).ZeroIf(func(p *PromptTokensDetails) bool { return p.CacheWrites.Total() == 0 })

	cacheWrite1hField = jsonwire.Func(cacheWrite1hMember,
		func(p *PromptTokensDetails, d *jsonwire.Decoder) { p.putCacheWrite(time.Hour, d.Int()) },
		func(p *PromptTokensDetails, b []byte) ([]byte, error) {
			return fmt.Append(b, p.CacheWrites[time.Hour]), nil
		}).
		ZeroIf(func(p *PromptTokensDetails) bool { return p.CacheWrites[time.Hour] <= 0 })
)

// decodeCacheWrites reads LiteLLM's member. It ignores what it does not understand.
func (p *PromptTokensDetails) decodeCacheWrites(d *jsonwire.Decoder) {
	var members map[string]json.RawMessage
	if json.Unmarshal(d.Raw(), &members) != nil {
		return
	}
	for name, value := range members {
		var n float64
		if of, ok := lifetime.ParseTokensName(name); ok && json.Unmarshal(value, &n) == nil {
			p.putCacheWrite(of, int64(min(n, jsonwire.MaxInteger)))
		}
	}
	p.CacheWrites = p.CacheWrites.normal(math.MaxInt64)
}

// putCacheWrite sets the number of a lifetime that is being decoded unless it has a larger one.
func (p *PromptTokensDetails) putCacheWrite(d time.Duration, n int64) {
	if n > p.CacheWrites[d] {
		p.CacheWrites = p.CacheWrites.with(d, n)
	}
}
