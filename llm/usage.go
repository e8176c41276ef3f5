package llm

import (
	"cmp"
	"maps"
	"math"
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// Beyond returns how much more u is than other, which are reconciled. Numbers that are less are zero.
func (u *Usage) Beyond(other *Usage) (rest Usage) {
	numbers, less := u.counts(), other.counts()
	for i, n := range rest.counts() {
		*n = max(*numbers[i]-*less[i], 0)
	}
	rest.PromptTokensDetails.CacheWrites = u.PromptTokensDetails.CacheWrites.Minus(other.PromptTokensDetails.CacheWrites)
	rest.Reconcile()
	return rest
}

// mediaUsageJSON is the JSON of the Usage of images and speech.
var mediaUsageJSON = jsonwire.NewObject(
	jsonwire.Int("input_tokens", func(u *Usage) *int { return &u.PromptTokens }).Always(),
	jsonwire.Int("output_tokens", func(u *Usage) *int { return &u.CompletionTokens }).Always(),
	totalTokensField,
	jsonwire.Struct(
		"input_tokens_details",
		func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails },
		mediaPromptDetailsJSON,
	).AppendWith((*Usage).appendMediaDetails),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

// textTokens is the member with the tokens of a prompt that are text. A Usage has it in the Extra of its details.
const textTokens = "text_tokens"

// mediaPromptDetailsJSON is the JSON of the PromptTokensDetails of images and speech.
var mediaPromptDetailsJSON = jsonwire.NewObject(
	jsonwire.Func(textTokens,
		func(p *PromptTokensDetails, d *jsonwire.Decoder) {
			p.Extra = jsonwire.MergeExtra(p.Extra, Extra{textTokens: d.Raw()})
		},
		func(p *PromptTokensDetails, b []byte) ([]byte, error) {
			return jsonwire.AppendRaw(b, p.Extra[textTokens])
		}).
		ZeroIf(func(p *PromptTokensDetails) bool { return p.Extra[textTokens] == nil }),
	jsonwire.Int("image_tokens", func(p *PromptTokensDetails) *int { return &p.ImageTokens }).
		AlwaysIf(func(p *PromptTokensDetails) bool { return p.Extra[textTokens] != nil }),
	jsonwire.Int("audio_tokens", func(p *PromptTokensDetails) *int { return &p.AudioTokens }),
	jsonwire.Int("cached_tokens", func(p *PromptTokensDetails) *int { return &p.CachedTokens }),
	jsonwire.Extra(func(p *PromptTokensDetails) *Extra { return &p.Extra }),
)

// appendMediaDetails appends the details of a prompt for images or speech. Clients expect both its text and its images.
func (u *Usage) appendMediaDetails(b []byte) ([]byte, error) {
	p := u.PromptTokensDetails
	if text := u.PromptTokens - p.ImageTokens - p.AudioTokens; p.ImageTokens > 0 && text >= 0 && p.Extra[textTokens] == nil {
		p.Extra = maps.Clone(p.Extra)
		if p.Extra == nil {
			p.Extra = make(Extra, 1)
		}
		p.Extra[textTokens] = strconv.AppendInt(nil, int64(text), 10)
	}
	return mediaPromptDetailsJSON.Append(b, &p)
}

// Usage is the number of tokens that a request used. Negative numbers count as zero, and
// details that are more than what they are a part of are lowered. It is decoded leniently: see
// [ChatChunk].
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"` // if zero, the sum of the other two is encoded

	PromptTokensDetails     PromptTokensDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails CompletionTokensDetails `json:"completion_tokens_details,omitzero"`
	Extra                   Extra                   `json:"-"`
}

// PromptTokensDetails counts some of the PromptTokens of a [Usage] by their kind.
// The name of CacheWriteTokens is OpenRouter's
// (https://openrouter.ai/docs/use-cases/usage-accounting). CacheWrites are LiteLLM's
// cache_creation_token_details, with members such as ephemeral_5m_input_tokens; those of an hour are also
// cache_write_1h_tokens.
type PromptTokensDetails struct {
	CachedTokens     int         `json:"cached_tokens,omitzero"`                // read from the prompt cache
	CacheWriteTokens int         `json:"cache_write_tokens,omitzero"`           // written to the prompt cache; if the sum of CacheWrites is more, that counts
	CacheWrites      CacheWrites `json:"cache_creation_token_details,omitzero"` // the CacheWriteTokens by their lifetime, as far as it is known
	AudioTokens      int         `json:"audio_tokens,omitzero"`
	ImageTokens      int         `json:"image_tokens,omitzero"`
	Extra            Extra       `json:"-"`
}

// CompletionTokensDetails counts some of the CompletionTokens of a [Usage] by
// their kind.
type CompletionTokensDetails struct {
	ReasoningTokens int   `json:"reasoning_tokens,omitzero"`
	AudioTokens     int   `json:"audio_tokens,omitzero"`
	Extra           Extra `json:"-"`
}

var usageJSON = jsonwire.NewObject(
	jsonwire.Int("prompt_tokens", func(u *Usage) *int { return &u.PromptTokens }).Always(),
	jsonwire.Int("completion_tokens", func(u *Usage) *int { return &u.CompletionTokens }).Always(),
	totalTokensField,
	jsonwire.Struct(
		"prompt_tokens_details",
		func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails },
		promptTokensDetailsJSON,
	),
	jsonwire.Struct(
		"completion_tokens_details",
		func(u *Usage) *CompletionTokensDetails { return &u.CompletionTokensDetails },
		completionTokensDetailsJSON,
	),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

var totalTokensField = jsonwire.Int("total_tokens", func(u *Usage) *int { return &u.TotalTokens }).
	Always().AppendWith(func(u *Usage, b []byte) ([]byte, error) { return strconv.AppendInt(b, int64(u.Total()), 10), nil })

var promptTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("cached_tokens", func(p *PromptTokensDetails) *int { return &p.CachedTokens }),
	jsonwire.Int("cache_write_tokens", func(p *PromptTokensDetails) *int { return &p.CacheWriteTokens }),
	cacheWritesField,
	cacheWrite1hField,
	jsonwire.Int("audio_tokens", func(p *PromptTokensDetails) *int { return &p.AudioTokens }),
	jsonwire.Int("image_tokens", func(p *PromptTokensDetails) *int { return &p.ImageTokens }),
	jsonwire.Extra(func(p *PromptTokensDetails) *Extra { return &p.Extra }),
)

var completionTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("reasoning_tokens", func(c *CompletionTokensDetails) *int { return &c.ReasoningTokens }),
	jsonwire.Int("audio_tokens", func(c *CompletionTokensDetails) *int { return &c.AudioTokens }),
	jsonwire.Extra(func(c *CompletionTokensDetails) *Extra { return &c.Extra }),
)

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(usageJSON, &u) }

// UnmarshalJSON decodes a usage leniently.
func (u *Usage) UnmarshalJSON(data []byte) error { return param.UnmarshalReply(data, usageJSON, u) }

// MarshalJSON encodes p.
func (p PromptTokensDetails) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(promptTokensDetailsJSON, &p)
}

// UnmarshalJSON decodes details leniently.
func (p *PromptTokensDetails) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, promptTokensDetailsJSON, p)
}

// MarshalJSON encodes c.
func (c CompletionTokensDetails) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(completionTokensDetailsJSON, &c)
}

// UnmarshalJSON decodes details leniently.
func (c *CompletionTokensDetails) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, completionTokensDetailsJSON, c)
}

// Add adds the numbers of other to those of u. A negative number
// counts as zero, and a sum that does not fit into an int is [math.MaxInt]. A TotalTokens of
// zero counts as the sum of the other two. The members of Extra are not added, because what
// they mean is not known: those of u and of its details stay as they are. A nil other adds
// nothing.
func (u *Usage) Add(other *Usage) {
	if other == nil {
		return
	}
	total, hasTotal := addTokens(u.Total(), other.Total()), u.TotalTokens != 0 || other.TotalTokens != 0
	from := other.counts()
	for i, n := range u.counts() {
		*n = addTokens(*n, *from[i])
	}
	p := &u.PromptTokensDetails
	p.CacheWrites = p.CacheWrites.Plus(other.PromptTokensDetails.CacheWrites)
	if hasTotal {
		u.TotalTokens = total
	}
}

// addTokens returns the sum of two numbers of tokens, as Usage.Add does.
func addTokens(a, b int) int {
	a, b = max(a, 0), max(b, 0)
	return a + min(b, math.MaxInt-a)
}

// counts returns all numbers of u but CacheWrites.
func (u *Usage) counts() [9]*int {
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	return [...]*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens,
		&p.CachedTokens, &p.CacheWriteTokens, &p.AudioTokens, &p.ImageTokens, &c.ReasoningTokens, &c.AudioTokens}
}

// Total returns TotalTokens, or the sum of the other two if that is zero.
func (u *Usage) Total() int {
	return cmp.Or(u.TotalTokens, addTokens(u.PromptTokens, u.CompletionTokens))
}

// nilIfZero returns u, or nil if no number in it is above zero. Some servers send
// such a usage if they do not count tokens.
func nilIfZero(u *Usage) *Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

// Bound makes negative numbers zero, and the others small enough to be added.
func (u *Usage) Bound() {
	for _, n := range u.counts() {
		*n = min(max(*n, 0), math.MaxInt/4)
	}
	p := &u.PromptTokensDetails
	p.CacheWrites = p.CacheWrites.normal(math.MaxInt / 4)
}

// Reconcile makes the numbers of u, which are bounded, agree with each other: the total is the
// sum, and details are no more than the tokens that they are a part of. Otherwise a price
// for uncached tokens would become negative.
func (u *Usage) Reconcile() {
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	p.CachedTokens = min(p.CachedTokens, u.PromptTokens)
	p.CacheWriteTokens = int(min(max(int64(p.CacheWriteTokens), p.CacheWrites.Total()), int64(u.PromptTokens-p.CachedTokens)))
	p.CacheWrites = p.CacheWrites.atMost(int64(p.CacheWriteTokens))
	p.AudioTokens = min(p.AudioTokens, u.PromptTokens)
	p.ImageTokens = min(p.ImageTokens, u.PromptTokens)
	c.ReasoningTokens = min(c.ReasoningTokens, u.CompletionTokens)
	c.AudioTokens = min(c.AudioTokens, u.CompletionTokens)
}
