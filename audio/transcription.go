package audio

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

// A Transcriber is a [llmhttp.Backend] that writes down what is spoken in recordings.
type Transcriber interface {
	// Transcribe returns the text of req.File, in English if req.Translate is set. As with Chat of
	// a Backend, the work is done while the stream is iterated over, and must stop when ctx is
	// done. For an unknown model the stream yields [llm.ModelNotFound], and for a file that it cannot
	// read an [*llm.Error] with the status 400, the code "invalid_value" and the param "file".
	//
	// The Transcriber owns req, but not the content of the File, which others may read too. It is
	// called concurrently.
	Transcribe(ctx context.Context, req *TranscriptionRequest) TranscriptionStream
}

// A TranscriptionStream is the reply to a [TranscriptionRequest]: its chunks in order, and then at
// most one error. A stream without a chunk is an error too. The rules of a [llm.ChatStream] hold. A
// whole reply is a stream of one chunk.
type TranscriptionStream = iter.Seq2[*TranscriptionChunk, error]

// The values of [TranscriptionRequest.ResponseFormat].
const (
	TranscriptionJSON     = "json"
	TranscriptionText     = "text"
	TranscriptionSRT      = "srt"
	TranscriptionVTT      = "vtt"
	TranscriptionVerbose  = "verbose_json"
	TranscriptionDiarized = "diarized_json" // segments tell who speaks
)

// The values of [TranscriptionRequest.TimestampGranularities].
const (
	granularityWord    = "word"
	granularitySegment = "segment"
)

// A TranscriptionRequest is the form of POST /v1/audio/transcriptions and of POST
// /v1/audio/translations, with the names of its fields. A Handler checks requests before it passes
// them to a [Transcriber], and sets ResponseFormat.
type TranscriptionRequest struct {
	File           *llm.File `json:"file"` // the recording; see form.Store
	Model          string    `json:"model"`
	Translate      bool      `json:"-"`               // the text is to be in English, whatever is spoken
	Language       string    `json:"language"`        // what is spoken, such as "de"; not checked, and empty if the client does not tell
	Prompt         string    `json:"prompt"`          // text that comes before the recording, or names in it
	ResponseFormat string    `json:"response_format"` // one of the constants, such as TranscriptionJSON, which is the format's default
	Temperature    *float64  `json:"temperature"`     // 0 to 1; nil leaves it to the Backend

	// TimestampGranularities are what has times in TranscriptionVerbose: "word", "segment" or
	// both. Empty means segments. In other formats they have no effect.
	TimestampGranularities []string `json:"timestamp_granularities"`

	Include []string `json:"include"` // what else the client asks for, such as "logprobs"
	Stream  bool     `json:"stream"`  // the client gets the text while it is made

	// Extra has the fields without a field here, by their names, which may end in "[]".
	Extra map[string][]string `json:"-"`
}

// WantsSegments reports whether the client gets the Segments of the reply.
func (r *TranscriptionRequest) WantsSegments() bool {
	switch r.ResponseFormat {
	case TranscriptionSRT, TranscriptionVTT, TranscriptionDiarized:
		return true
	case TranscriptionVerbose:
		return len(r.TimestampGranularities) == 0 || slices.Contains(r.TimestampGranularities, granularitySegment)
	}
	return false
}

// WantsWords reports whether the client gets the Words of the reply.
func (r *TranscriptionRequest) WantsWords() bool {
	return r.ResponseFormat == TranscriptionVerbose && slices.Contains(r.TimestampGranularities, granularityWord)
}

// Clone returns a copy that shares only the content of the File.
func (r *TranscriptionRequest) Clone() *TranscriptionRequest {
	c := *r
	if r.File != nil {
		c.File = new(*r.File)
	}
	if r.Temperature != nil {
		c.Temperature = new(*r.Temperature)
	}
	c.TimestampGranularities, c.Include = slices.Clone(r.TimestampGranularities), slices.Clone(r.Include)
	if r.Extra != nil {
		c.Extra = make(map[string][]string, len(r.Extra))
		for name, values := range r.Extra {
			c.Extra[name] = slices.Clone(values)
		}
	}
	return &c
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *TranscriptionRequest) EndUser() string {
	for _, name := range param.EndUserNames {
		if values := r.Extra[name]; len(values) == 1 && values[0] != "" {
			return values[0]
		}
	}
	return ""
}

// transcriptionFields are the fields of the form, besides the file. Those that are lists may have
// "[]" behind their names, which may come several times.
var transcriptionFields = map[string]func(r *TranscriptionRequest, value string) error{
	"model":           func(r *TranscriptionRequest, v string) error { r.Model = v; return nil },
	"language":        func(r *TranscriptionRequest, v string) error { r.Language = v; return nil },
	"prompt":          func(r *TranscriptionRequest, v string) error { r.Prompt = v; return nil },
	"response_format": func(r *TranscriptionRequest, v string) error { r.ResponseFormat = v; return nil },
	"temperature": func(r *TranscriptionRequest, v string) (err error) {
		r.Temperature, err = wire.FormNumber("temperature", v)
		return err
	},
	"stream": func(r *TranscriptionRequest, v string) (err error) {
		r.Stream, err = wire.FormBool("stream", v)
		return err
	},
}

var transcriptionLists = map[string]func(r *TranscriptionRequest) *[]string{
	"timestamp_granularities": func(r *TranscriptionRequest) *[]string { return &r.TimestampGranularities },
	"include":                 func(r *TranscriptionRequest) *[]string { return &r.Include },
}

const fieldFile = "file"

var transcriptionForm = wire.Fields[TranscriptionRequest]{
	Single: transcriptionFields,
	Lists:  transcriptionLists,
	Files:  []string{fieldFile},
	AddExtra: func(r *TranscriptionRequest, name string, values []string) {
		if r.Extra == nil {
			r.Extra = make(map[string][]string)
		}
		r.Extra[name] = values
	},
}

// decode decodes a form into r, which is zero but for Translate.
func (r *TranscriptionRequest) decode(f *form.Form) (err error) {
	if err := transcriptionForm.Decode(r, f.Values); err != nil {
		return err
	}
	r.File, err = f.File(fieldFile)
	return err
}

// Validate returns an [*llm.Error] for the first parameter that the format does not allow, and sets
// ResponseFormat if it is empty. Functions that decode requests call it: see [ServeTranscription].
func (r *TranscriptionRequest) Validate() error {
	switch {
	case r.File == nil:
		return invalid.Missing(fieldFile)
	case r.File.Size == 0:
		return invalid.Param("invalid_value", fieldFile, "Invalid 'file': the file is empty.")
	case r.Model == "":
		return invalid.Missing("model")
	}
	r.ResponseFormat = cmp.Or(r.ResponseFormat, TranscriptionJSON)
	formats := []string{TranscriptionJSON, TranscriptionText, TranscriptionSRT, TranscriptionVerbose, TranscriptionVTT}
	if !r.Translate {
		formats = append(formats, TranscriptionDiarized)
	}
	if !slices.Contains(formats, r.ResponseFormat) {
		return invalid.Value("response_format", r.ResponseFormat, formats...)
	}
	if r.Stream && (r.ResponseFormat == TranscriptionSRT || r.ResponseFormat == TranscriptionVTT) {
		return invalid.Param(
			"invalid_value",
			"stream",
			"Invalid 'stream': a reply in the format '%s' cannot be streamed.",
			r.ResponseFormat,
		)
	}
	if t := r.Temperature; t != nil && !(*t >= 0 && *t <= 1) {
		e := jsonwire.Error{Kind: jsonwire.OutOfRange, Path: "temperature", Got: jsonwire.FormatNumber(*t), Above: *t > 1}
		if e.Above {
			e.Limit = 1
		}
		return invalid.JSON(&e)
	}
	for i, g := range r.TimestampGranularities {
		if g != granularityWord && g != granularitySegment {
			return invalid.Value(param.Path("timestamp_granularities", i, ""), g, granularityWord, granularitySegment)
		}
	}
	return nil
}

// countTokens counts the tokens of r. The estimate of the recording is that of one in a chat.
func (r *TranscriptionRequest) countTokens(c tokens.Estimator) int {
	n := c.File(r.File) + c.Text(r.Prompt)
	for _, s := range []string{r.Model, r.Language, r.ResponseFormat} {
		n += c.Label(s)
	}
	for _, s := range slices.Concat(r.TimestampGranularities, r.Include) {
		n += c.Label(s)
	}
	for name, values := range r.Extra {
		n += c.Label(name)
		for _, v := range values {
			n += c.Text(v)
		}
	}
	return n
}

// serveTranscription serves a request with the members that the path tells.
func (o *Options) serveTranscription(c *llmhttp.Call, req *TranscriptionRequest) error {
	err := o.Files.Read(c, transcriptionForm.Files, func(f *form.Form) error {
		if err := req.decode(f); err != nil {
			return err
		}
		if err := wire.CheckFields(c, req.Extra); err != nil {
			return err
		}
		return req.Validate()
	})
	if err != nil {
		return err
	}
	if req.Stream {
		return ServeTranscription(c, req, &transcriptionEvents{diarized: req.ResponseFormat == TranscriptionDiarized})
	}
	return ServeTranscription(c, req, newWholeTranscription(req))
}

// ServeTranscription serves a request that another wire format has, for the function of a route that a
// Protocol makes of [TranscriptionEndpoint] with [llmhttp.NewRoute]. That function reads a form, or the Body
// of c, into a TranscriptionRequest and checks it by [TranscriptionRequest.Validate]; ServeTranscription,
// which then owns req, calls Reserve, Stream and Ask, and ends the reply, which encoder encodes.
func ServeTranscription(c *llmhttp.Call, req *TranscriptionRequest, encoder Encoder[TranscriptionChunk]) error {
	err := c.Reserve(llmhttp.Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return req.countTokens(wire.Estimator(c, req.Model)) },
		Units: &llmhttp.Units{AudioMillis: fileMillis(req.File)}, Stream: req.Stream,
		Params: llmhttp.RequestParams{Messages: 1, ResponseFormatType: req.ResponseFormat, Temperature: req.Temperature},
	})
	if err != nil {
		return err
	}
	var units llmhttp.Units // of the recording so far, as the chunks tell
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		return llmhttp.Used{}, llmhttp.AppendStream(s, transcribe(ctx, b, req), func(chunk *TranscriptionChunk) llmhttp.Progress {
			p := llmhttp.Progress{Units: &units, Text: chunk.Text, HasOutput: true, Size: chunk.Size()}
			length := millis(chunk.length())
			if u := chunk.Usage; u != nil {
				p.Usage = u.Tokens
				length = cmp.Or(millis(u.Seconds), length)
			}
			units.AudioMillis = max(units.AudioMillis, length)
			return p
		}, encoder.AppendChunk)
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}

var transcribe = ability.Stream(Transcriber.Transcribe)
