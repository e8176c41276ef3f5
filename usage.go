package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A UsageStore stores what accounts used. It must be safe for concurrent use.
type UsageStore interface {
	// Record stores records. It skips records whose ID is already stored, so
	// that a call that failed can be repeated. It must not retain the slice. A
	// store may round times down to microseconds.
	Record(ctx context.Context, records ...UsageRecord) error

	// Query returns the sums for q, sorted by Start and then by Model, which is
	// compared as Go compares strings. They include all records of the calls of
	// Record that have returned without an error; [UsageBuffer] documents an exception.
	// There are no sums for periods without usage. For an empty range and for an unknown
	// account, Query returns no sums and no error.
	Query(ctx context.Context, q UsageQuery) ([]UsageSum, error)
}

// A KeyUsageStore is a [UsageStore] that knows which key used what. Without
// one, a [Handler] enforces the tokens of Limits.Quota with its Limiter, and cannot
// enforce a Quota with a Cost.
type KeyUsageStore interface {
	UsageStore

	// QueryKey is like Query, but returns the sums only of the records of
	// q.Account that have the given KeyID.
	QueryKey(ctx context.Context, keyID string, q UsageQuery) ([]UsageSum, error)
}

// QueryKey returns what a key used. If s is not a [KeyUsageStore], or is a wrapper
// of a store that is not, the error wraps [errors.ErrUnsupported].
func QueryKey(ctx context.Context, s UsageStore, keyID string, q UsageQuery) ([]UsageSum, error) {
	if k, ok := s.(KeyUsageStore); ok {
		return k.QueryKey(ctx, keyID, q)
	}
	return nil, fmt.Errorf("llmhttp: the usage of a key is not known: %w", errors.ErrUnsupported)
}

// A UsageRecord is what one request used. There is one for each request for which
// the Backend was asked for a chat, images or embeddings, whether it succeeded,
// failed or was abandoned by its client. The exception is a request that the Backend
// refuses with a 404 before it has returned any part of a reply: it does not know the
// model, or does not implement the endpoint.
type UsageRecord struct {
	ID        string    // the ID of the request, unique for all time
	Time      time.Time // when the request arrived
	Account   string
	KeyID     string
	Model     string // the name that the client used; at most 512 bytes, without control characters
	Endpoint  Endpoint
	Protocol  string // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Usage     Usage
	Images    int  // number of images that were generated
	Estimated bool // Usage is an estimate of the Handler, because the Backend reported none
}

// A UsageQuery selects the usage of Account at times from From, inclusive, to To,
// exclusive, and divides it into periods of Step. The first period begins at From;
// the last may be shorter. If Step is zero or negative, there is one period.
type UsageQuery struct {
	Account  string
	From, To time.Time
	Step     time.Duration
}

// PeriodStart returns the start of the period that contains t, in the location
// of From.
func (q UsageQuery) PeriodStart(t time.Time) time.Time {
	if q.Step <= 0 {
		return q.From
	}
	// Times can be further apart than a Duration, so this compares the offsets
	// of both times from a multiple of Step since the zero Time.
	offset := t.Sub(t.Truncate(q.Step)) - q.From.Sub(q.From.Truncate(q.Step))
	if offset < 0 {
		offset += q.Step
	}
	return t.Add(-offset).In(q.From.Location())
}

// A UsageSum is the usage of one model in the period that begins at Start.
type UsageSum struct {
	Start                          time.Time
	Model                          string
	Requests                       int64
	PromptTokens, CompletionTokens int64
	CachedTokens                   int64 // the PromptTokens that were read from a prompt cache
	ReasoningTokens                int64 // the CompletionTokens that were used for reasoning
	Images                         int64
}

// Add adds the numbers of other to s. It does not change Start and Model.
func (s *UsageSum) Add(other UsageSum) {
	s.Requests += other.Requests
	s.PromptTokens += other.PromptTokens
	s.CompletionTokens += other.CompletionTokens
	s.CachedTokens += other.CachedTokens
	s.ReasoningTokens += other.ReasoningTokens
	s.Images += other.Images
}

// Sum returns r as the sum of a single request, whose Start is the time of r.
func (r *UsageRecord) Sum() UsageSum {
	u := &r.Usage
	return UsageSum{
		Start: r.Time, Model: r.Model, Requests: 1, Images: int64(r.Images),
		PromptTokens: int64(u.PromptTokens), CompletionTokens: int64(u.CompletionTokens), CachedTokens: int64(u.PromptTokensDetails.CachedTokens),
		ReasoningTokens: int64(u.CompletionTokensDetails.ReasoningTokens),
	}
}

// A UsageReporter is a [UsageStore] that can sum up the usage of several accounts
// and keys. A [Handler] does not need one; programs that report usage do. Its
// methods are safe for concurrent use.
type UsageReporter interface {
	UsageStore

	// ReportUsage returns the sums for q by group and model. They are sorted
	// by Start, Account, KeyID and Model, as Go compares strings.
	ReportUsage(ctx context.Context, q ReportQuery) ([]ReportSum, error)
}

// A ReportQuery selects usage and says how to group it.
type ReportQuery struct {
	Account  string    // empty means all accounts
	KeyID    string    // empty means all keys
	From, To time.Time // midnights in UTC; To is exclusive
	By       ReportGroup

	// Limit is the maximum number of groups. If there are more, those with the
	// most tokens are returned, and of groups with equally many those with the
	// most requests. Zero or negative means no limit.
	Limit int
}

// A ReportGroup says what a [ReportSum] adds up.
type ReportGroup string

// The groups of a [ReportQuery].
const (
	ByTotal   ReportGroup = ""
	ByDay     ReportGroup = "day" // days begin at midnight in UTC
	ByKey     ReportGroup = "key" // keys of different accounts are different keys
	ByAccount ReportGroup = "account"
)

// A ReportSum is the usage of one model in one group. Start is that of the day
// with ByDay, and otherwise the From of the query.
type ReportSum struct {
	KeyID   string // only with ByKey
	Account string // only with ByKey and ByAccount
	UsageSum
}

// Usage is the number of tokens that a request used. It is decoded leniently: see
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
// (https://openrouter.ai/docs/use-cases/usage-accounting).
type PromptTokensDetails struct {
	CachedTokens     int   `json:"cached_tokens,omitzero"`      // read from the prompt cache
	CacheWriteTokens int   `json:"cache_write_tokens,omitzero"` // written to the prompt cache
	AudioTokens      int   `json:"audio_tokens,omitzero"`
	Extra            Extra `json:"-"`
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
	jsonwire.Struct("prompt_tokens_details", func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails }, promptTokensDetailsJSON),
	jsonwire.Struct("completion_tokens_details", func(u *Usage) *CompletionTokensDetails { return &u.CompletionTokensDetails }, completionTokensDetailsJSON),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

var totalTokensField = jsonwire.Int("total_tokens", func(u *Usage) *int { return &u.TotalTokens }).
	Always().AppendWith(func(u *Usage, b []byte) ([]byte, error) { return strconv.AppendInt(b, int64(u.total()), 10), nil })

var promptTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("cached_tokens", func(p *PromptTokensDetails) *int { return &p.CachedTokens }),
	jsonwire.Int("cache_write_tokens", func(p *PromptTokensDetails) *int { return &p.CacheWriteTokens }),
	jsonwire.Int("audio_tokens", func(p *PromptTokensDetails) *int { return &p.AudioTokens }),
	jsonwire.Extra(func(p *PromptTokensDetails) *Extra { return &p.Extra }),
)

var completionTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("reasoning_tokens", func(c *CompletionTokensDetails) *int { return &c.ReasoningTokens }),
	jsonwire.Int("audio_tokens", func(c *CompletionTokensDetails) *int { return &c.AudioTokens }),
	jsonwire.Extra(func(c *CompletionTokensDetails) *Extra { return &c.Extra }),
)

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return marshal(usageJSON, &u) }

// UnmarshalJSON decodes a usage leniently.
func (u *Usage) UnmarshalJSON(data []byte) error { return unmarshalReply(data, usageJSON, u) }

// MarshalJSON encodes p.
func (p PromptTokensDetails) MarshalJSON() ([]byte, error) {
	return marshal(promptTokensDetailsJSON, &p)
}

// UnmarshalJSON decodes details leniently.
func (p *PromptTokensDetails) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, promptTokensDetailsJSON, p)
}

// MarshalJSON encodes c.
func (c CompletionTokensDetails) MarshalJSON() ([]byte, error) {
	return marshal(completionTokensDetailsJSON, &c)
}

// UnmarshalJSON decodes details leniently.
func (c *CompletionTokensDetails) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, completionTokensDetailsJSON, c)
}

// total returns TotalTokens, or the sum of the other two if that is zero.
func (u *Usage) total() int {
	return cmp.Or(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
}

// nilIfZero returns u, or nil if no number in it is above zero. Some servers send
// such a usage if they do not count tokens.
func nilIfZero(u *Usage) *Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

func (u *Usage) dropInvalid() bool {
	return dropInvalid(u.Extra, u.PromptTokensDetails.Extra, u.CompletionTokensDetails.Extra)
}

// isContinuedBy reports whether next can be the usage of the same request at a later
// time: it has the same prompt, and no fewer tokens of the completion.
func (u *Usage) isContinuedBy(next *Usage) bool {
	return (u.PromptTokens == 0 || u.PromptTokens == next.PromptTokens) && u.CompletionTokens <= next.CompletionTokens
}
