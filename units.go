// Units and Cost: what is charged for and what it costs.

package llmhttp

import (
	"iter"

	"github.com/llmhttp/llmhttp/internal/saturating"
	"github.com/llmhttp/llmhttp/llm"
)

// Units are the amounts of what somebody charges for, of one request or of several. Unlike a
// [llm.Usage] they are not a part of a wire format. No number is negative.
type Units struct {
	PromptTokens      int64           `json:"prompt_tokens"`
	CachedTokens      int64           `json:"cached_tokens"`          // the PromptTokens that were read from a prompt cache
	CacheWriteTokens  int64           `json:"cache_write_tokens"`     // the PromptTokens that were written to a prompt cache
	CacheWrites       llm.CacheWrites `json:"cache_writes,omitempty"` // the CacheWriteTokens by how long the cache keeps them, as far as that is known
	PromptAudioTokens int64           `json:"prompt_audio_tokens"`    // the PromptTokens of audio
	PromptImageTokens int64           `json:"prompt_image_tokens"`    // the PromptTokens of images

	CompletionTokens      int64 `json:"completion_tokens"`
	ReasoningTokens       int64 `json:"reasoning_tokens"`        // the CompletionTokens that were used for reasoning
	CompletionAudioTokens int64 `json:"completion_audio_tokens"` // the CompletionTokens of audio

	Images      int64 `json:"images"`       // that were generated
	AudioMillis int64 `json:"audio_millis"` // milliseconds of audio that was transcribed or spoken
	Characters  int64 `json:"characters"`   // of text that was spoken
	SearchUnits int64 `json:"search_units"` // of rerankers
}

// unitNames are the names of the numbers of Units but CacheWrites in the order of Units.numbers.
var unitNames = [...]string{
	"prompt_tokens", "cached_tokens", "cache_write_tokens", "prompt_audio_tokens", "prompt_image_tokens",
	"completion_tokens", "reasoning_tokens", "completion_audio_tokens",
	"images", "audio_millis", "characters", "search_units",
}

func (u *Units) numbers() [len(unitNames)]*int64 {
	return [...]*int64{
		&u.PromptTokens, &u.CachedTokens, &u.CacheWriteTokens, &u.PromptAudioTokens, &u.PromptImageTokens,
		&u.CompletionTokens, &u.ReasoningTokens, &u.CompletionAudioTokens,
		&u.Images, &u.AudioMillis, &u.Characters, &u.SearchUnits,
	}
}

// IsZero reports whether nothing was used.
func (u Units) IsZero() bool {
	for _, n := range u.numbers() {
		if *n != 0 {
			return false
		}
	}
	return u.CacheWrites.Total() == 0
}

// All returns the numbers of u but CacheWrites with their names, in the order of the fields, for stores
// and reports. The names are those of the fields in lower case with underscores. The pointers
// refer to the fields.
func (u *Units) All() iter.Seq2[string, *int64] {
	return func(yield func(string, *int64) bool) {
		for i, n := range u.numbers() {
			if !yield(unitNames[i], n) {
				return
			}
		}
	}
}

// Add adds the numbers of other to those of u. Sums that do not fit are the largest int64.
func (u *Units) Add(other Units) {
	from := other.numbers()
	for i, n := range u.numbers() {
		*n = saturating.Add(*n, *from[i])
	}
	u.CacheWrites = u.CacheWrites.Plus(other.CacheWrites)
}

// minus returns how much more u is than other. Numbers that are less are zero.
func (u Units) minus(other Units) Units {
	less := other.numbers()
	for i, n := range u.numbers() {
		*n = max(*n-*less[i], 0)
	}
	u.CacheWrites = u.CacheWrites.Minus(other.CacheWrites)
	return u
}

// Tokens returns the tokens of prompts and completions together.
func (u Units) Tokens() int64 { return saturating.Add(u.PromptTokens, u.CompletionTokens) }

// UnitsOf returns the units of u: its tokens. Negative numbers count as zero.
func UnitsOf(u llm.Usage) Units {
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	units := Units{
		PromptTokens: int64(u.PromptTokens), CachedTokens: int64(p.CachedTokens),
		CacheWriteTokens: int64(p.CacheWriteTokens), CacheWrites: llm.CacheWrites(nil).Plus(p.CacheWrites),
		PromptAudioTokens: int64(p.AudioTokens), PromptImageTokens: int64(p.ImageTokens),
		CompletionTokens: int64(u.CompletionTokens), ReasoningTokens: int64(c.ReasoningTokens), CompletionAudioTokens: int64(c.AudioTokens),
	}
	for _, n := range units.numbers() {
		*n = max(*n, 0)
	}
	return units
}

// A Cost is what one or several requests cost, in parts. Its zero value is no cost.
type Cost struct {
	Input      llm.Money `json:"input"` // prompts, without what was read from or written to a prompt cache
	CacheRead  llm.Money `json:"cache_read"`
	CacheWrite llm.Money `json:"cache_write"`
	Output     llm.Money `json:"output"` // completions, images and audio
	Other      llm.Money `json:"other"`  // for example a price for each request or search
}

// costNames are the names of the parts of a Cost in the order of Cost.parts.
var costNames = [...]string{"input", "cache_read", "cache_write", "output", "other"}

func (c *Cost) parts() [len(costNames)]*llm.Money {
	return [...]*llm.Money{&c.Input, &c.CacheRead, &c.CacheWrite, &c.Output, &c.Other}
}

// All returns the parts of c with their names, in the order of the fields. The names are those
// of the fields in lower case with underscores. The pointers refer to the fields.
func (c *Cost) All() iter.Seq2[string, *llm.Money] {
	return func(yield func(string, *llm.Money) bool) {
		for i, m := range c.parts() {
			if !yield(costNames[i], m) {
				return
			}
		}
	}
}

// Add adds the parts of other to those of c.
func (c *Cost) Add(other Cost) {
	from := other.parts()
	for i, m := range c.parts() {
		*m = m.Add(*from[i])
	}
}

// Total returns the sum of the parts.
func (c Cost) Total() (total llm.Money) {
	for _, m := range c.parts() {
		total = total.Add(*m)
	}
	return total
}
