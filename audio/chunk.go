package audio

import (
	"math"
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// A TranscriptionChunk is the reply to a [TranscriptionRequest], or a part of it. Text, Segments
// and Words are appended to those of the chunks before; of the others, the last value counts that
// is not zero. Its JSON is that of a reply in TranscriptionVerbose. It is decoded leniently: see
// [llm.ChatChunk].
type TranscriptionChunk struct {
	Text     string                 `json:"text"`
	Language string                 `json:"language"`          // what is spoken, such as "english"
	Duration float64                `json:"duration"`          // of the recording in seconds; if no chunk has it, the end of the last segment
	Segments []TranscriptionSegment `json:"segments,omitzero"` // nil if there are none: a client that wants subtitles then gets a 400 after the work was done, which is recorded
	Words    []TranscriptionWord    `json:"words,omitzero"`

	// Usage is what the request is charged for so far. If no chunk has it, that is the Duration. If
	// that is not known either, the tokens are an estimate, and the time is read from the recording
	// or, of a format that is not known, the longest that its size allows.
	Usage *TranscriptionUsage `json:"usage,omitzero"`

	Extra llm.Extra `json:"-"` // such as logprobs
}

var transcriptionChunkJSON = jsonwire.NewObject(
	jsonwire.String("language", func(c *TranscriptionChunk) *string { return &c.Language }).Always(),
	decimal("duration", func(c *TranscriptionChunk) *float64 { return &c.Duration }),
	jsonwire.String("text", func(c *TranscriptionChunk) *string { return &c.Text }).Always(),
	jsonwire.List("segments", func(c *TranscriptionChunk) *[]TranscriptionSegment { return &c.Segments }, transcriptionSegmentJSON, 0).
		AlwaysIf(func(c *TranscriptionChunk) bool { return c.Segments != nil }),
	jsonwire.List("words", func(c *TranscriptionChunk) *[]TranscriptionWord { return &c.Words }, transcriptionWordJSON, 0),
	jsonwire.Pointer("usage", func(c *TranscriptionChunk) **TranscriptionUsage { return &c.Usage }, transcriptionUsageJSON),
	jsonwire.Extra(func(c *TranscriptionChunk) *llm.Extra { return &c.Extra }),
).Reserve("task")

// MarshalJSON encodes c.
func (c TranscriptionChunk) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(transcriptionChunkJSON, &c)
}

// UnmarshalJSON decodes a reply leniently.
func (c *TranscriptionChunk) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, transcriptionChunkJSON, c)
}

// length returns the Duration, or if that is zero, the end of the last segment.
func (c *TranscriptionChunk) length() float64 {
	if c.Duration > 0 {
		return c.Duration
	}
	end := 0.0
	for i := range c.Segments {
		end = max(end, c.Segments[i].End)
	}
	return end
}

// millis returns seconds in milliseconds, rounded up, and 0 if seconds is not a duration.
func millis(seconds float64) int64 {
	const most = 1e9
	if !(seconds > 0) {
		return 0
	}
	return int64(math.Ceil(min(seconds, most)*1000 - 1e-6)) // 8.47 has no exact value
}

// Size returns how many bytes c has, about, for what bounds the chunks that it keeps.
func (c *TranscriptionChunk) Size() int {
	n := len(c.Text) + len(c.Language) + jsonwire.ExtraSize(c.Extra)
	for i := range c.Segments {
		s := &c.Segments[i]
		n += texts.ElementSize + len(s.ID) + len(s.Text) + len(s.Speaker) + 8*len(s.Tokens) + jsonwire.ExtraSize(s.Extra)
	}
	for i := range c.Words {
		n += texts.ElementSize + len(c.Words[i].Word) + jsonwire.ExtraSize(c.Words[i].Extra)
	}
	return n
}

// A TranscriptionSegment is a part of the text with its time. Times are in seconds from the start of
// the recording. The Handler numbers the segments of a reply; only those that tell the Speaker keep
// their ID, if they have one.
type TranscriptionSegment struct {
	ID               string    `json:"id"` // in JSON a number if it is one
	Seek             int       `json:"seek"`
	Start            float64   `json:"start"`
	End              float64   `json:"end"`
	Text             string    `json:"text"`
	Speaker          string    `json:"speaker,omitzero"` // of TranscriptionDiarized
	Tokens           []int     `json:"tokens"`
	Temperature      float64   `json:"temperature"`
	AvgLogprob       float64   `json:"avg_logprob"`
	CompressionRatio float64   `json:"compression_ratio"`
	NoSpeechProb     float64   `json:"no_speech_prob"`
	Extra            llm.Extra `json:"-"`
}

var transcriptionSegmentJSON = jsonwire.NewObject(
	jsonwire.Func("id", (*TranscriptionSegment).decodeID, (*TranscriptionSegment).appendID),
	jsonwire.Int("seek", func(s *TranscriptionSegment) *int { return &s.Seek }).Always(),
	decimal("start", func(s *TranscriptionSegment) *float64 { return &s.Start }),
	decimal("end", func(s *TranscriptionSegment) *float64 { return &s.End }),
	jsonwire.String("text", func(s *TranscriptionSegment) *string { return &s.Text }).Always(),
	jsonwire.String("speaker", func(s *TranscriptionSegment) *string { return &s.Speaker }),
	jsonwire.Member("tokens", func(s *TranscriptionSegment) *[]int { return &s.Tokens }, tokenListJSON).Always(),
	decimal("temperature", func(s *TranscriptionSegment) *float64 { return &s.Temperature }),
	decimal("avg_logprob", func(s *TranscriptionSegment) *float64 { return &s.AvgLogprob }),
	decimal("compression_ratio", func(s *TranscriptionSegment) *float64 { return &s.CompressionRatio }),
	decimal("no_speech_prob", func(s *TranscriptionSegment) *float64 { return &s.NoSpeechProb }),
	jsonwire.Extra(func(s *TranscriptionSegment) *llm.Extra { return &s.Extra }),
).Reserve("type")

// MarshalJSON encodes s with all members, which clients expect.
func (s TranscriptionSegment) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(transcriptionSegmentJSON, &s)
}

// UnmarshalJSON decodes a segment leniently.
func (s *TranscriptionSegment) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, transcriptionSegmentJSON, s)
}

func (s *TranscriptionSegment) decodeID(d *jsonwire.Decoder) {
	if d.Kind() == '"' {
		s.ID = d.String()
		return
	}
	s.ID = d.View()
}

func (s *TranscriptionSegment) appendID(b []byte) ([]byte, error) {
	if n, err := strconv.ParseInt(s.ID, 10, 64); err == nil {
		return strconv.AppendInt(b, n, 10), nil
	}
	return jsonwire.AppendString(b, s.ID), nil
}

// A TranscriptionWord is a word of the text with its time, as in a [TranscriptionSegment].
type TranscriptionWord struct {
	Word  string    `json:"word"`
	Start float64   `json:"start"`
	End   float64   `json:"end"`
	Extra llm.Extra `json:"-"`
}

var transcriptionWordJSON = jsonwire.NewObject(
	jsonwire.String("word", func(w *TranscriptionWord) *string { return &w.Word }).Always(),
	decimal("start", func(w *TranscriptionWord) *float64 { return &w.Start }),
	decimal("end", func(w *TranscriptionWord) *float64 { return &w.End }),
	jsonwire.Extra(func(w *TranscriptionWord) *llm.Extra { return &w.Extra }),
)

// MarshalJSON encodes w.
func (w TranscriptionWord) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(transcriptionWordJSON, &w)
}

// UnmarshalJSON decodes a word leniently.
func (w *TranscriptionWord) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, transcriptionWordJSON, w)
}

// A TranscriptionUsage is what a transcription is charged for: tokens, or the time of the recording.
// In JSON it is of the type "tokens" if Tokens is set, and otherwise of the type "duration".
type TranscriptionUsage struct {
	Tokens  *llm.Usage `json:"-"`       // nil if tokens are not charged for
	Seconds float64    `json:"seconds"` // that are charged for, if they differ from the Duration; else zero
}

// transcriptionUsageObject has the members of both types of a TranscriptionUsage.
type transcriptionUsageObject struct {
	kind    string
	tokens  llm.Usage
	seconds float64
}

const (
	usageOfTokens   = "tokens"
	usageOfDuration = "duration"
)

var transcriptionUsageObjectJSON = jsonwire.NewObject(
	jsonwire.String("type", func(o *transcriptionUsageObject) *string { return &o.kind }),
	jsonwire.Int("input_tokens", func(o *transcriptionUsageObject) *int { return &o.tokens.PromptTokens }),
	jsonwire.Struct(
		"input_token_details",
		func(o *transcriptionUsageObject) *llm.PromptTokensDetails { return &o.tokens.PromptTokensDetails },
		audioTokensJSON,
	),
	jsonwire.Int("output_tokens", func(o *transcriptionUsageObject) *int { return &o.tokens.CompletionTokens }),
	jsonwire.Int("total_tokens", func(o *transcriptionUsageObject) *int { return &o.tokens.TotalTokens }),
	jsonwire.Member("seconds", func(o *transcriptionUsageObject) *float64 { return &o.seconds }, decimalJSON),
)

// audioTokensJSON are details of a prompt that is audio, of which the other tokens are text.
var audioTokensJSON = jsonwire.NewObject(
	jsonwire.Int("audio_tokens", func(p *llm.PromptTokensDetails) *int { return &p.AudioTokens }),
)

var transcriptionUsageJSON jsonwire.Type[TranscriptionUsage] = transcriptionUsageType{}

type transcriptionUsageType struct{}

func (transcriptionUsageType) IsZero(u *TranscriptionUsage) bool { return *u == TranscriptionUsage{} }

func (transcriptionUsageType) Decode(d *jsonwire.Decoder, u *TranscriptionUsage) {
	var o transcriptionUsageObject
	transcriptionUsageObjectJSON.Decode(d, &o)
	if u.Seconds = o.seconds; o.kind == usageOfTokens || o.kind == "" && o.tokens.Total() > 0 {
		u.Tokens = &o.tokens
	}
}

func (transcriptionUsageType) Append(b []byte, u *TranscriptionUsage) ([]byte, error) {
	if u.Tokens == nil {
		b, err := jsonwire.AppendFloat(append(b, `{"type":"`+usageOfDuration+`","seconds":`...), finite(u.Seconds), 64)
		return append(b, '}'), err
	}
	t, audio := u.Tokens, u.Tokens.PromptTokensDetails.AudioTokens
	b = append(b, `{"type":"`+usageOfTokens+`"`...)
	for _, m := range [...]struct {
		before string
		n      int
	}{
		{`,"input_tokens":`, t.PromptTokens}, {`,"input_token_details":{"text_tokens":`, t.PromptTokens - audio}, {`,"audio_tokens":`, audio},
		{`},"output_tokens":`, t.CompletionTokens}, {`,"total_tokens":`, t.Total()},
	} {
		b = strconv.AppendInt(append(b, m.before...), int64(m.n), 10)
	}
	return append(b, '}'), nil
}

// decimal returns a member that is a number and always encoded.
func decimal[T any](name string, at func(*T) *float64) jsonwire.Field[T] {
	return jsonwire.Member(name, at, decimalJSON).Always()
}

// decimalJSON is the JSON of numbers that some servers send as strings. Those that are not finite, as
// models of speech compute them, are encoded as 0.
var decimalJSON jsonwire.Type[float64] = decimalType{}

type decimalType struct{}

func (decimalType) IsZero(f *float64) bool { return *f == 0 }

func (decimalType) Decode(d *jsonwire.Decoder, f *float64) {
	if d.Kind() == '"' {
		n, _ := strconv.ParseFloat(d.String(), 64)
		*f = finite(n)
		return
	}
	*f = d.Float(64)
}

func (decimalType) Append(b []byte, f *float64) ([]byte, error) {
	return jsonwire.AppendFloat(b, finite(*f), 64)
}

// finite returns f, or 0 if it is not finite.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

var tokenListJSON jsonwire.Type[[]int] = tokenListType{}

type tokenListType struct{}

func (tokenListType) IsZero(list *[]int) bool { return *list == nil }

func (tokenListType) Decode(d *jsonwire.Decoder, list *[]int) {
	d.UnboundedArray(func(int) { *list = append(*list, int(d.Int())) })
}

func (tokenListType) Append(b []byte, list *[]int) ([]byte, error) {
	return jsonwire.AppendInts(b, *list)
}
