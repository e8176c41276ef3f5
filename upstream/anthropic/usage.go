// The usage of a reply.

package anthropic

import (
	"encoding/json"
	"maps"
	"slices"

	own "github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/lifetime"
	"github.com/llmhttp/llmhttp/llm"
)

// A usage is the usage of a reply so far. Its numbers are totals: later ones take the place of earlier ones.
type usage struct {
	members map[string]json.RawMessage // of all usages that came
}

// inputNumbers are the numbers of a usage that are about the prompt.
var inputNumbers = []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"}

const (
	memberOutput  = "output_tokens"
	memberDetails = "output_tokens_details"
	memberTier    = "service_tier"
)

// add adds a usage that came later. Some servers have the prompt at the start only, others at the end only, and zeros in the
// other place (Z.ai: anomalyco/opencode#9356; Kimi and MiniMax at the end), and those that end with a prompt have all of its
// numbers there, as a start may be an estimate. So the numbers of the prompt are replaced together.
func (u *usage) add(raw json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return
	}
	if u.members == nil {
		u.members = make(map[string]json.RawMessage, len(members))
	}
	hasPrompt := slices.ContainsFunc(inputNumbers[:3], func(name string) bool { return numberOf(members[name]) > 0 })
	for name, value := range members {
		switch {
		case !hasValue(value):
		case slices.Contains(inputNumbers, name) && !hasPrompt:
		case name == memberOutput && numberOf(value) == 0:
		default:
			u.members[name] = value
		}
	}
}

// result returns the usage, or nil if no number of it is above zero. It has the tokens of compactions, which the numbers of the
// API have not: "A `compaction` entry's tokens are not included in the top-level `usage` fields" (anthropic-sdk-go 2.15).
func (u *usage) result() *llm.Usage {
	m := u.members
	out := tokensOf(m)
	var iterations []map[string]json.RawMessage
	_ = json.Unmarshal(m["iterations"], &iterations) // another value has none
	for _, i := range iterations {
		if jsonwire.Text(i["type"]) == own.BlockCompaction {
			out.Add(tokensOf(i))
		}
	}
	if out.PromptTokens == 0 && out.CompletionTokens == 0 {
		return nil
	}
	for name, value := range m {
		if slices.Contains(inputNumbers, name) || name == memberOutput || name == memberDetails || name == memberTier {
			continue
		}
		if out.Extra == nil {
			out.Extra = make(llm.Extra)
		}
		out.Extra[name] = value
	}
	return out
}

// tokensOf returns the tokens of a usage. In the prompt it has those that were read from and written to the cache, which
// input_tokens of the API have not.
func tokensOf(m map[string]json.RawMessage) *llm.Usage {
	read, written := numberOf(m["cache_read_input_tokens"]), numberOf(m["cache_creation_input_tokens"])
	out := &llm.Usage{CompletionTokens: numberOf(m[memberOutput])}
	details := &out.PromptTokensDetails
	var lifetimes map[string]json.RawMessage
	_ = json.Unmarshal(m["cache_creation"], &lifetimes) // another value has none
	for name, value := range lifetimes {
		if d, ok := lifetime.ParseTokensName(name); ok && numberOf(value) > 0 {
			if details.CacheWrites == nil {
				details.CacheWrites = make(llm.CacheWrites)
			}
			details.CacheWrites[d] = int64(numberOf(value))
		}
	}
	written = max(written, int(min(details.CacheWrites.Total(), jsonwire.MaxInteger)))
	details.CachedTokens, details.CacheWriteTokens = read, written
	out.PromptTokens = numberOf(m["input_tokens"]) + read + written
	var thinking struct {
		Tokens json.RawMessage `json:"thinking_tokens"`
	}
	_ = json.Unmarshal(m[memberDetails], &thinking)
	out.CompletionTokensDetails.ReasoningTokens = numberOf(thinking.Tokens)
	return out
}

// tier returns the service_tier under the name that chat completions have for it, or "".
func (u *usage) tier() string {
	tier := jsonwire.Text(u.members[memberTier])
	if tier == "standard" {
		return "default"
	}
	return tier
}

// isKnown reports whether a usage has a number that is known, or nothing at all.
func (u *usage) isKnown() bool {
	if len(u.members) == 0 {
		return true
	}
	return slices.ContainsFunc(append(slices.Clip(inputNumbers), memberOutput), func(name string) bool { return u.members[name] != nil })
}

// noteUsage tells the Handler if the usage of a reply is not known.
func (r *chatReply) noteUsage() {
	if !r.usage.isKnown() {
		callctx.UsageUnknown(r.Caller(), r.UnknownUsage(slices.Sorted(maps.Keys(r.usage.members))))
	}
}

// numberOf returns a number of tokens, which may be in a string, and zero for other values.
func numberOf(raw json.RawMessage) int {
	var n float64
	if json.Unmarshal(raw, &n) != nil && json.Unmarshal([]byte(jsonwire.Text(raw)), &n) != nil {
		return 0
	}
	return int(min(max(n, 0), jsonwire.MaxInteger/4))
}
