package llmhttp

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationTranscriptions is the [Operation] of writing down what is spoken in a recording.
const OperationTranscriptions Operation = "transcriptions"

// ScopeTranscriptions is the [Scope] of transcriptions and translations of recordings.
const ScopeTranscriptions Scope = "transcriptions"

// A Transcriber is a [Backend] that writes down what is spoken in recordings.
type Transcriber interface {
	// Transcribe returns the text of req.File, in English if req.Translate is set. As with Chat of
	// a [Backend], the work is done while the stream is iterated over, and must stop when ctx is
	// done. For an unknown model the stream yields [llm.ModelNotFound], and for a file that it cannot
	// read an [*llm.Error] with the status 400, the code "invalid_value" and the param "file".
	//
	// The Transcriber owns req, but not the content of the File, which others may read too.
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
	File           *llm.File `json:"file"` // the recording; see Options.MaxFiles
	Model          string    `json:"model"`
	Translate      bool      `json:"-"`               // the text is to be in English, whatever is spoken
	Language       string    `json:"language"`        // what is spoken, such as "de"; not checked, and empty if the client does not tell
	Prompt         string    `json:"prompt"`          // text that comes before the recording, or names in it
	ResponseFormat string    `json:"response_format"` // one of the constants, such as TranscriptionJSON, which is the format's default
	Temperature    *float64  `json:"temperature"`     // 0 to 1; nil leaves it to the Backend

	// TimestampGranularities are what has times in TranscriptionVerbose: "word", "segment" or
	// both. Empty means segments.
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
	c.File, c.Temperature = clone(r.File), clone(r.Temperature)
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
		r.Temperature, err = parseFormNumber("temperature", v)
		return err
	},
	"stream": func(r *TranscriptionRequest, v string) (err error) {
		r.Stream, err = parseFormBool("stream", v)
		return err
	},
}

var transcriptionLists = map[string]func(r *TranscriptionRequest) *[]string{
	"timestamp_granularities": func(r *TranscriptionRequest) *[]string { return &r.TimestampGranularities },
	"include":                 func(r *TranscriptionRequest) *[]string { return &r.Include },
}

const fieldFile = "file"

var transcriptionForm = formFields[TranscriptionRequest]{
	single: transcriptionFields,
	lists:  transcriptionLists,
	files:  []string{fieldFile},
	addExtra: func(r *TranscriptionRequest, name string, values []string) {
		if r.Extra == nil {
			r.Extra = make(map[string][]string)
		}
		r.Extra[name] = values
	},
}

// decode decodes a form into r, which is zero.
func (r *TranscriptionRequest) decode(form *Form) error {
	if err := transcriptionForm.decode(r, form.Values); err != nil {
		return err
	}
	file, err := form.file(fieldFile)
	r.File = file
	return err
}

// Validate returns an *Error for the first parameter that the format does not allow, and sets
// ResponseFormat if it is empty. Functions that decode requests call it: see [BindTranscriptions].
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

// countTranscription counts the tokens of a request for a transcription. The estimate of the recording is
// that of one in a chat.
func countTranscription(c tokens.Estimator, r *TranscriptionRequest) int {
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

var transcriptionsOperation = operation{name: OperationTranscriptions, scope: ScopeTranscriptions, supportedBy: Has[Transcriber], output: OutputText}

// serveTranscription serves a request whose reply is encoded by encoder.
func serveTranscription(c *Call, req *TranscriptionRequest, encoder TranscriptionEncoder) error {
	err := c.Reserve(Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return countTranscription(c.q.tokenEstimator(), req) },
		Units: &Units{AudioMillis: fileMillis(req.File)}, Stream: req.Stream,
		Params: RequestParams{Messages: 1, ResponseFormatType: req.ResponseFormat, Temperature: req.Temperature},
	})
	if err != nil {
		return err
	}
	var units Units // of the recording so far, as the chunks tell
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		return Used{}, AppendStream(s, streamAbility(ctx, b, Transcriber.Transcribe, req), func(chunk *TranscriptionChunk) Progress {
			p := Progress{Units: &units, Text: chunk.Text, HasOutput: true, Size: chunk.Size()}
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

// A TranscriptionEncoder encodes the reply to one [TranscriptionRequest]. Its methods are called as
// those of a [SpeechEncoder]. See "Protocols" in the package documentation.
type TranscriptionEncoder interface {
	// Framing returns how the reply is sent. It is called once, before the other methods and
	// before the Backend is called.
	Framing() Framing

	// AppendChunk adds a chunk, which is only valid during the call. An error fails the request, and
	// the Backend must stop.
	AppendChunk(b []byte, c *TranscriptionChunk) ([]byte, error)

	// AppendEnd ends a reply that is complete. The usage is final; it is zero if the Backend has
	// reported the time of the recording in place of tokens.
	AppendEnd(b []byte, u *llm.Usage) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *llm.Error) []byte
}

// BindTranscriptions binds a route to transcriptions, with [ScopeTranscriptions]. The body of its
// requests is a form, which is only valid during the call of decode, except for the files. decode
// checks the request by [TranscriptionRequest.Validate] and returns the encoder of its reply. If the
// Backend is no [Transcriber], the client gets a 404. See "Protocols" in the package documentation.
func BindTranscriptions(
	decode func(ctx context.Context, r *http.Request, form *Form) (*TranscriptionRequest, TranscriptionEncoder, error),
) Binding {
	mustBeSet(decode != nil)
	return transcriptionsOperation.bindCall(func(c *Call) error {
		var req *TranscriptionRequest
		var encoder TranscriptionEncoder
		err := c.form([]string{fieldFile}, func(form *Form) (err error) {
			if req, encoder, err = decode(c.Context(), c.Request(), form); err == nil && (req == nil || encoder == nil) {
				err = errNothingDecoded
			}
			return err
		})
		if err != nil {
			return err
		}
		return serveTranscription(c, req, encoder)
	})
}

// decodeTranscription decodes POST /v1/audio/transcriptions.
func decodeTranscription(ctx context.Context, _ *http.Request, form *Form) (*TranscriptionRequest, TranscriptionEncoder, error) {
	return decodeAudio(ctx, form, new(TranscriptionRequest))
}

// decodeTranslation decodes POST /v1/audio/translations.
func decodeTranslation(ctx context.Context, _ *http.Request, form *Form) (*TranscriptionRequest, TranscriptionEncoder, error) {
	return decodeAudio(ctx, form, &TranscriptionRequest{Translate: true})
}

func decodeAudio(ctx context.Context, form *Form, req *TranscriptionRequest) (*TranscriptionRequest, TranscriptionEncoder, error) {
	if err := req.decode(form); err != nil {
		return nil, nil, err
	}
	if err := checkUnknownFields(ctx, req.Extra); err != nil {
		return nil, nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, nil, err
	}
	if req.Stream {
		return req, &transcriptionEvents{diarized: req.ResponseFormat == TranscriptionDiarized}, nil
	}
	return req, newWholeTranscription(req), nil
}
