package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"iter"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationSpeech is the [Operation] of speaking a text.
const OperationSpeech Operation = "speech"

// ScopeSpeech is the [Scope] of speech.
const ScopeSpeech Scope = "speech"

// A Speaker is a [Backend] that speaks texts.
type Speaker interface {
	// Speak returns the audio of req.Input. As with Chat of a [Backend], the work is done while
	// the stream is iterated over, and must stop when ctx is done. For an unknown model the
	// stream yields [llm.ModelNotFound]. Names of voices are the Speaker's own: many clients send
	// "alloy", whatever there is. The Speaker owns req.
	Speak(ctx context.Context, req *SpeechRequest) SpeechStream
}

// A SpeechStream is the reply to a [SpeechRequest]: its chunks in order, and then at most one
// error. A stream without audio is an error too. The rules of a [llm.ChatStream] hold, except that
// Audio is only valid until yield returns: a [Speaker] may use its memory again.
//
// Before the first audio an error becomes the HTTP status of the reply. Later the client gets an
// error event if it asked for events, and its connection is cut in any case.
type SpeechStream = iter.Seq2[*SpeechChunk, error]

// A SpeechChunk is a part of the reply to a [SpeechRequest].
type SpeechChunk struct {
	Audio    []byte        // the next bytes of the recording, in the ResponseFormat of the request; may be empty, and is valid until yield returns
	Usage    *llm.Usage    // of the request so far, as in a [llm.ChatChunk]; nil if it is not known. Tokens of the completion are of audio
	Duration time.Duration // of the recording so far, for prices by time; zero if it is not known: then the Handler measures it, or estimates it by the size
}

// A SpeechRequest is the body of POST /v1/audio/speech. A Handler checks requests before it
// passes them to a [Speaker], and sets ResponseFormat and StreamFormat.
type SpeechRequest struct {
	Model          string      `json:"model"`
	Input          string      `json:"input"` // the text; see Options.MaxSpeechInput
	Voice          SpeechVoice `json:"voice,omitzero"`
	Instructions   string      `json:"instructions,omitzero"`    // how to speak
	ResponseFormat string      `json:"response_format,omitzero"` // mp3, opus, aac, flac, wav or pcm, which is 24 kHz, 16 bits, little-endian, mono; the format's default is mp3
	Speed          *float64    `json:"speed,omitzero"`           // 0.25 to 4; nil means 1
	StreamFormat   string      `json:"stream_format,omitzero"`   // audio or sse: what the client gets; the Speaker yields audio for both
	Extra          llm.Extra   `json:"-"`
}

var speechRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *SpeechRequest) *string { return &r.Model }).Always(),
	jsonwire.String("input", func(r *SpeechRequest) *string { return &r.Input }).Always(),
	jsonwire.Member("voice", func(r *SpeechRequest) *SpeechVoice { return &r.Voice }, speechVoiceJSON),
	jsonwire.String("instructions", func(r *SpeechRequest) *string { return &r.Instructions }),
	jsonwire.String("response_format", func(r *SpeechRequest) *string { return &r.ResponseFormat }),
	jsonwire.OptionalFloat("speed", func(r *SpeechRequest) **float64 { return &r.Speed }).Between(0.25, 4),
	jsonwire.String("stream_format", func(r *SpeechRequest) *string { return &r.StreamFormat }),
	jsonwire.Extra(func(r *SpeechRequest) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r. What is nil or empty is left out.
func (r SpeechRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(speechRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *SpeechRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, speechRequestJSON, r)
}

// A SpeechVoice names a voice. In JSON it is a string if Name is set, and otherwise an object
// with the other fields.
type SpeechVoice struct {
	Name  string    `json:"-"`
	ID    string    `json:"id"` // of a voice that was made for an account
	Extra llm.Extra `json:"-"`
}

// speechVoiceObject has the members of a SpeechVoice that is an object.
var speechVoiceObject = jsonwire.NewObject(
	jsonwire.String("id", func(v *SpeechVoice) *string { return &v.ID }).Always(),
	jsonwire.Extra(func(v *SpeechVoice) *llm.Extra { return &v.Extra }),
)

var speechVoiceJSON jsonwire.Type[SpeechVoice] = speechVoiceType{}

type speechVoiceType struct{}

func (speechVoiceType) Decode(d *jsonwire.Decoder, v *SpeechVoice) {
	switch d.Kind() {
	case '"':
		if v.Name = d.String(); v.Name == "" {
			d.Fail(param.EmptyString(d.Path()))
		}
	case '{':
		if speechVoiceObject.Decode(d, v); v.ID == "" {
			d.Fail(param.Missing(d.Path() + ".id"))
		}
	default:
		d.Mismatch("one of a string or object")
	}
}

func (speechVoiceType) Append(b []byte, v *SpeechVoice) ([]byte, error) {
	if v.Name != "" {
		return jsonwire.AppendString(b, v.Name), nil
	}
	return speechVoiceObject.Append(b, v)
}

func (speechVoiceType) IsZero(v *SpeechVoice) bool {
	return v.Name == "" && speechVoiceObject.IsZero(v)
}

// MarshalJSON encodes v.
func (v SpeechVoice) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(speechVoiceJSON, &v) }

// UnmarshalJSON decodes a string or an object.
func (v *SpeechVoice) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, speechVoiceJSON, v)
}

// speechFormats are the values of SpeechRequest.ResponseFormat, the default first, each followed
// by its Content-Type.
var speechFormats = [...][2]string{
	{"mp3", "audio/mpeg"}, {"opus", "audio/ogg"}, {"aac", "audio/aac"}, {"flac", "audio/flac"}, {"wav", "audio/wav"}, {"pcm", "audio/pcm"},
}

// The values of SpeechRequest.StreamFormat, the default first.
const (
	streamFormatAudio = "audio"
	streamFormatSSE   = "sse"
)

// Validate returns an *Error for the first parameter that the format does not allow, and sets
// ResponseFormat and StreamFormat if they are empty. Functions that decode requests call it: see
// [BindSpeech].
func (r *SpeechRequest) Validate() error {
	switch {
	case r.Model == "":
		return invalid.Missing("model")
	case r.Input == "":
		return invalid.Missing("input")
	case r.Voice.Name == "" && r.Voice.ID == "":
		return invalid.Missing("voice")
	}
	if err := speechRequestJSON.Check(r); err != nil {
		return invalid.JSON(err)
	}
	r.ResponseFormat = cmp.Or(r.ResponseFormat, speechFormats[0][0])
	if r.contentType() == "" {
		var names []string
		for _, f := range speechFormats {
			names = append(names, f[0])
		}
		return invalid.Value("response_format", r.ResponseFormat, names...)
	}
	switch r.StreamFormat = cmp.Or(r.StreamFormat, streamFormatAudio); r.StreamFormat {
	case streamFormatAudio, streamFormatSSE:
		return nil
	}
	return invalid.Value("stream_format", r.StreamFormat, streamFormatAudio, streamFormatSSE)
}

// contentType returns the Content-Type of the audio, or "" if the format is not known.
func (r *SpeechRequest) contentType() string {
	for _, f := range speechFormats {
		if f[0] == r.ResponseFormat {
			return f[1]
		}
	}
	return ""
}

// checkLength returns an *Error if a text has more than limit characters.
func (r *SpeechRequest) checkLength(limit int) error {
	if n := utf8.RuneCountInString(r.Input); n > limit {
		return invalid.LongString("input", limit, n)
	}
	if n := utf8.RuneCountInString(r.Instructions); n > limit {
		return invalid.LongString("instructions", limit, n)
	}
	return nil
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *SpeechRequest) EndUser() string { return param.EndUser(r.Extra) }

// countSpeech counts the tokens of the texts of a request for speech.
func countSpeech(c tokens.Estimator, r *SpeechRequest) int {
	n := c.Text(r.Input) + c.Text(r.Instructions) + c.Extra(r.Extra) + c.Extra(r.Voice.Extra)
	for _, s := range []string{r.Model, r.Voice.Name, r.Voice.ID, r.ResponseFormat, r.StreamFormat} {
		n += c.Label(s)
	}
	return n
}

var speechOperation = operation{name: OperationSpeech, scope: ScopeSpeech, supportedBy: Has[Speaker], output: OutputAudio}

// serveSpeech serves a request whose reply is encoded by encoder.
func serveSpeech(c *Call, req *SpeechRequest, encoder SpeechEncoder) error {
	units := Units{Characters: int64(utf8.RuneCountInString(req.Input)), AudioMillis: req.expectedDuration().Milliseconds()}
	err := c.Reserve(Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return countSpeech(c.q.tokenEstimator(), req) },
		Units: &units, Stream: true, Params: RequestParams{Messages: 1, ResponseFormatType: req.ResponseFormat},
	})
	if err != nil {
		return err
	}
	var told time.Duration
	var audio audioMeter
	if req.ResponseFormat == "pcm" {
		audio.meter.BytesPerSecond = bytesPerPCMSecond
	}
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		return Used{}, AppendStream(s, streamAbility(ctx, b, Speaker.Speak, req), func(chunk *SpeechChunk) Progress {
			p := Progress{Usage: chunk.Usage, Units: &units, HasOutput: len(chunk.Audio) > 0, Size: len(chunk.Audio)}
			told = max(told, chunk.Duration)
			audio.add(chunk.Audio)
			if units.AudioMillis = told.Milliseconds(); units.AudioMillis == 0 {
				units.AudioMillis, p.Estimated = audio.millis()
			}
			return p
		}, encoder.AppendChunk)
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}

// expectedDuration estimates how long it takes to speak the text: 15 characters of an alphabet in a
// second, or 4 that are syllables or words, such as Chinese ones.
func (r *SpeechRequest) expectedDuration() (d time.Duration) {
	const firstSyllable = 0x2e80 // the first radical of Chinese characters; Hangul and Kana follow
	for _, c := range r.Input {
		if c < firstSyllable {
			d += time.Second / 15
		} else {
			d += time.Second / 4
		}
	}
	if r.Speed != nil {
		d = time.Duration(float64(d) / *r.Speed)
	}
	return d
}

// A SpeechEncoder encodes the reply to one [SpeechRequest]. The Handler never calls its methods
// concurrently. A reply is any number of AppendChunk, and AppendEnd. What they append is sent as by
// a [ChatEncoder], and a reply that fails ends in the same way. See "Protocols" in the package
// documentation.
type SpeechEncoder interface {
	// Framing returns how the reply is sent. It is called once, before the other methods and
	// before the Backend is called.
	Framing() Framing

	// AppendChunk adds a chunk, which is only valid during the call, and whose Audio may be empty. An
	// error fails the request, and the Backend must stop.
	AppendChunk(b []byte, c *SpeechChunk) ([]byte, error)

	// AppendEnd ends a reply that is complete and has audio. The usage is final; it is zero if
	// the Backend reports none.
	AppendEnd(b []byte, u *llm.Usage) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *llm.Error) []byte
}

// BindSpeech binds a route to speech, with [ScopeSpeech]. decode checks the request by
// [SpeechRequest.Validate] and returns the encoder of its reply. The Handler checks the length of
// the texts. If the Backend is no [Speaker], the client gets a 404. See "Protocols" in the
// package documentation.
func BindSpeech(decode func(ctx context.Context, r *http.Request, body []byte) (*SpeechRequest, SpeechEncoder, error)) Binding {
	mustBeSet(decode != nil)
	return speechOperation.bindCall(func(c *Call) error {
		var req *SpeechRequest
		var encoder SpeechEncoder
		err := c.q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
			if req, encoder, err = decode(ctx, r, body); err == nil && (req == nil || encoder == nil) {
				err = errNothingDecoded
			}
			if err == nil {
				err = req.checkLength(c.q.h.opts.MaxSpeechInput)
			}
			return err
		})
		if err != nil {
			return err
		}
		return serveSpeech(c, req, encoder)
	})
}

// decodeSpeech decodes POST /v1/audio/speech.
func decodeSpeech(ctx context.Context, _ *http.Request, body []byte) (*SpeechRequest, SpeechEncoder, error) {
	req := new(SpeechRequest)
	if err := decodeRequest(body, speechRequestJSON, req); err != nil {
		return nil, nil, err
	}
	if err := checkUnknownMembers(ctx, req.Extra); err != nil {
		return nil, nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, nil, err
	}
	if req.StreamFormat == streamFormatSSE {
		return req, speechEvents{}, nil
	}
	return req, speechBytes{req.contentType()}, nil
}

// speechBytes is the encoder of replies that are the bytes of the recording. Nothing can be written
// between them, so that a failed one has no end of its own.
type speechBytes struct{ contentType string }

func (e speechBytes) Framing() Framing { return Framing{ContentType: e.contentType} }

func (speechBytes) AppendChunk(b []byte, c *SpeechChunk) ([]byte, error) {
	return append(b, c.Audio...), nil
}

func (speechBytes) AppendEnd(b []byte, _ *llm.Usage) ([]byte, error) { return b, nil }

func (speechBytes) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// speechEvents is the encoder of replies that are server-sent events.
type speechEvents struct{}

// maxEventAudio is how many bytes of audio one event may have: as base64, a line has less than the
// 64 KiB that some clients read.
const maxEventAudio = 24 << 10

func (speechEvents) Framing() Framing { return EventStream() }

func (speechEvents) AppendChunk(b []byte, c *SpeechChunk) ([]byte, error) {
	for audio := c.Audio; len(audio) > 0; {
		n := min(len(audio), maxEventAudio)
		b = append(openai.AppendEventStart(b), `{"type":"speech.audio.delta","audio":"`...)
		b = base64.StdEncoding.AppendEncode(b, audio[:n])
		b = openai.AppendEventEnd(append(b, `"}`...))
		audio = audio[n:]
	}
	return b, nil
}

func (speechEvents) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	b = append(openai.AppendEventStart(b), `{"type":"speech.audio.done","usage":`...)
	b, err := mediaUsageJSON.Append(b, u)
	return openai.AppendEventEnd(append(b, '}')), err
}

func (speechEvents) AppendFailure(b []byte, e *llm.Error) []byte {
	return openai.AppendErrorEvent(b, e)
}
