// The names and places that servers have for the usage.

package reply

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// usageSpellings has the names that servers give to the numbers of a usage, in addition to those that package llm
// decodes: the path of members that leads to each from the usage. The first that is above zero counts. Sources are in
// docs/wire-format.md.
var usageSpellings = []struct {
	number func(u *llm.Usage) *int
	paths  []string
}{
	{func(u *llm.Usage) *int { return &u.PromptTokens }, []string{"prompt_tokens", "input_tokens"}},
	{func(u *llm.Usage) *int { return &u.CompletionTokens }, []string{"completion_tokens", "output_tokens"}},
	{func(u *llm.Usage) *int { return &u.TotalTokens }, []string{"total_tokens"}},
	{func(u *llm.Usage) *int { return &u.PromptTokensDetails.CachedTokens }, []string{
		"input_tokens_details.cached_tokens", "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens",
	}},
	{func(u *llm.Usage) *int { return &u.PromptTokensDetails.CacheWriteTokens }, []string{
		"input_tokens_details.cache_write_tokens", "cache_creation_input_tokens",
	}},
	{func(u *llm.Usage) *int { return &u.PromptTokensDetails.AudioTokens }, []string{
		"input_tokens_details.audio_tokens", "input_token_details.audio_tokens",
	}},
	{func(u *llm.Usage) *int { return &u.PromptTokensDetails.ImageTokens }, []string{"input_tokens_details.image_tokens"}},
	{func(u *llm.Usage) *int { return &u.CompletionTokensDetails.ReasoningTokens }, []string{
		"output_tokens_details.reasoning_tokens", "reasoning_tokens",
	}},
	{func(u *llm.Usage) *int { return &u.CompletionTokensDetails.AudioTokens }, []string{"output_tokens_details.audio_tokens"}},
}

// audioSeconds is Mistral's member with the length of the audio in a prompt.
const audioSeconds = "prompt_audio_seconds"

// secondsSpellings are the members of a usage that have the length of a recording in seconds.
var secondsSpellings = []string{"seconds", audioSeconds}

// usagesOf returns the usages in a reply or an event: in "usage", and in x_groq, where Groq has it in streams.
func usagesOf(body []byte) []json.RawMessage {
	var v struct {
		Usage json.RawMessage
		Groq  struct{ Usage json.RawMessage } `json:"x_groq"`
	}
	_ = json.Unmarshal(body, &v) // members of other types are skipped
	return []json.RawMessage{v.Usage, v.Groq.Usage}
}

// mayHaveUsage reports whether body has a member "usage" at any depth that is an object.
func mayHaveUsage(body []byte) bool {
	name := []byte(`"usage"`)
	for {
		i := bytes.Index(body, name)
		if i < 0 {
			return false
		}
		body = body[i+len(name):]
		value, isMember := bytes.CutPrefix(bytes.TrimLeft(body, jsonSpace), []byte(":"))
		if value = bytes.TrimLeft(value, jsonSpace); isMember && len(value) > 0 && value[0] == '{' {
			return true
		}
	}
}

const jsonSpace = " \t\r\n"

// Usage returns the usage in body, which is a reply or an event and not an error. decoded is the usage that the caller has found
// there, or nil; Usage completes its numbers. If the names of the usage in body are not known, Usage returns nil and tells the
// Handler.
func (r *Reply) Usage(body []byte, decoded *llm.Usage) *llm.Usage {
	if decoded != nil {
		completeUsage(decoded)
		return decoded
	}
	u, _ := r.usage(body)
	return u
}

// RecordingUsage returns the usage of body, the reply or an event of a transcription: its tokens, which are nil if there are none,
// and the length of the recording in seconds, which is zero if that is not known.
func (r *Reply) RecordingUsage(body []byte) (tokens *llm.Usage, seconds float64) {
	return r.usage(body)
}

func (r *Reply) usage(body []byte) (*llm.Usage, float64) {
	if !mayHaveUsage(body) {
		return nil, 0
	}
	for _, raw := range usagesOf(body) {
		if u, seconds := r.readUsage(raw); u != nil || seconds > 0 {
			return u, seconds
		}
	}
	return nil, 0
}

// readUsage reads a usage. If that is not known, it tells the Handler.
func (r *Reply) readUsage(raw json.RawMessage) (u *llm.Usage, seconds float64) {
	names := memberNames(raw)
	u = new(llm.Usage)
	if len(names) == 0 || u.UnmarshalJSON(raw) != nil {
		return nil, 0
	}
	if !slices.ContainsFunc(names, isUsageMember) {
		callctx.UsageUnknown(r.callerCtx, r.UnknownUsage(names))
		return nil, 0
	}
	seconds = secondsOf(u.Extra)
	if completeUsage(u); u.Total() <= 0 {
		u = nil
	}
	return u, seconds
}

// takeUsage completes the usage of a chunk. Moonshot has it in the choices of streams: each has the prompt and its own
// completion.
func (r *Chat) takeUsage(data []byte, chunk *llm.ChatChunk) {
	chunk.Usage = r.Usage(data, chunk.Usage)
	found := false
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		raw := choice.Extra[memberUsage]
		if raw == nil || chunk.Usage != nil {
			continue
		}
		u, _ := r.readUsage(raw)
		if delete(choice.Extra, memberUsage); len(choice.Extra) == 0 {
			choice.Extra = nil
		}
		if u == nil {
			continue
		}
		if r.usages == nil {
			r.usages = make(map[int]*llm.Usage)
		}
		found, r.usages[choice.Index] = true, u
	}
	if found {
		chunk.Usage = joinUsages(r.usages)
	}
}

const memberUsage = "usage"

// joinUsages returns the usage of a reply whose choices have usages of their own.
func joinUsages(usages map[int]*llm.Usage) *llm.Usage {
	var sum llm.Usage
	for _, i := range slices.Sorted(maps.Keys(usages)) {
		prompt, details := sum.PromptTokens, sum.PromptTokensDetails
		sum.Add(usages[i])
		if sum.PromptTokens, sum.PromptTokensDetails = usages[i].PromptTokens, usages[i].PromptTokensDetails; prompt > sum.PromptTokens {
			sum.PromptTokens, sum.PromptTokensDetails = prompt, details
		}
		sum.TotalTokens = 0
	}
	return &sum
}

// memberNames returns the names of the members of an object, sorted, and nil for other values.
func memberNames(raw json.RawMessage) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(members))
}

// isUsageMember reports whether a name is that of a member that is read of a usage.
func isUsageMember(name string) bool {
	if slices.Contains(secondsSpellings, name) {
		return true
	}
	for _, s := range usageSpellings {
		for _, path := range s.paths {
			if first, _, _ := strings.Cut(path, "."); first == name {
				return true
			}
		}
	}
	return false
}

// completeUsage sets the numbers of u that are zero and that its Extra has under other names.
func completeUsage(u *llm.Usage) {
	completeCacheWrites(u)
	if len(u.Extra) == 0 {
		return
	}
	for _, s := range usageSpellings {
		n := s.number(u)
		for _, path := range s.paths {
			if *n > 0 {
				break
			}
			*n = numberAt(u.Extra, path)
		}
	}
	// Mistral counts the tokens of audio in the total only.
	if rest := u.TotalTokens - u.PromptTokens - u.CompletionTokens; rest > 0 && secondsOf(llm.Extra{audioSeconds: u.Extra[audioSeconds]}) > 0 {
		u.PromptTokens += rest
		u.PromptTokensDetails.AudioTokens += rest
	}
}

// cacheWriteSpellings are the names that LiteLLM, new-api and Alibaba Cloud give to the tokens written to a cache,
// among the details of a prompt.
var cacheWriteSpellings = []string{"cache_creation_tokens", "cached_creation_tokens", "cache_creation_input_tokens"}

// lifetimeSpellings are the members of a usage, or of its details of the prompt, that have cache writes by their lifetime: Anthropic's
// object, which Alibaba Cloud has in the details, and new-api's numbers.
var lifetimeSpellings = []struct {
	name     string
	lifetime time.Duration // zero for an object
}{
	{"cache_creation", 0},
	{"claude_cache_creation_5_m_tokens", 5 * time.Minute},
	{"claude_cache_creation_1_h_tokens", time.Hour},
}

// completeCacheWrites sets the cache writes of u that it has under other names than those that package llm decodes.
func completeCacheWrites(u *llm.Usage) {
	p := &u.PromptTokensDetails
	for _, name := range cacheWriteSpellings {
		if p.CacheWriteTokens <= 0 {
			p.CacheWriteTokens = numberAt(p.Extra, name)
		}
	}
	for _, members := range []llm.Extra{u.Extra, p.Extra} {
		if p.CacheWrites.Total() > 0 {
			return
		}
		p.CacheWrites = cacheWritesOf(members)
	}
}

func cacheWritesOf(members llm.Extra) (writes llm.CacheWrites) {
	for _, s := range lifetimeSpellings {
		raw := members[s.name]
		switch {
		case raw == nil:
		case s.lifetime != 0:
			writes = writes.Plus(llm.CacheWrites{s.lifetime: int64(numberAt(members, s.name))})
		default:
			var p llm.PromptTokensDetails // has the same object under another name
			_ = p.UnmarshalJSON(slices.Concat([]byte(`{"cache_creation_token_details":`), raw, []byte("}")))
			writes = writes.Plus(p.CacheWrites)
		}
	}
	return writes
}

// numberAt returns the number at a path of members, or zero if there is none.
func numberAt(members llm.Extra, path string) int {
	name, rest, nested := strings.Cut(path, ".")
	raw := members[name]
	if raw == nil {
		return 0
	}
	if nested {
		var inner llm.Extra
		if json.Unmarshal(raw, &inner) != nil {
			return 0
		}
		return numberAt(inner, rest)
	}
	return int(min(floatOf(raw), jsonwire.MaxInteger))
}

// secondsOf returns the length of a recording in seconds, or zero if members do not have it.
func secondsOf(members llm.Extra) float64 {
	for _, name := range secondsSpellings {
		if f := floatOf(members[name]); f > 0 {
			return f
		}
	}
	return 0
}

// floatOf returns a positive number, which may be in a string, and zero for other values.
func floatOf(raw json.RawMessage) float64 {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
