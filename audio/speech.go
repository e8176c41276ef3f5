package audio

import (
	"cmp"
	"context"
	"encoding/base64"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

// A Speaker is a [llmhttp.Backend] that speaks texts.
type Speaker interface {
	// Speak returns the audio of req.Input. As with Chat of a Backend, the work is done while
	// the stream is iterated over, and must stop when ctx is done. For an unknown model the
	// stream yields [llm.ModelNotFound]. Names of voices are the Speaker's own: many clients send
	// "alloy", whatever there is. The Handler converts no audio and does not check it: a Speaker
	// refuses a ResponseFormat that it lacks, or tells the ContentType. It owns req, and is called
	// concurrently.
	Speak(ctx context.Context, req *SpeechRequest) SpeechStream
}

// A SpeechStream is the reply to a [SpeechRequest]: its chunks in order, and then at most one
// error. A stream without audio is an error too. The rules of a [llm.ChatStream] hold, except that
// Audio is only valid until yield returns: a [Speaker] may use its memory again.
//
// Before the first audio an error becomes the HTTP status of the reply. Later the client gets an
// error event if it asked for events, and its connection is cut in any case. Between the bytes of audio
// nothing else can be sent, not even what keeps a silent connection alive: a Speaker that is silent for
// longer than a proxy waits loses clients that did not ask for events.
type SpeechStream = iter.Seq2[*SpeechChunk, error]

// A SpeechChunk is a part of the reply to a [SpeechRequest].
type SpeechChunk struct {
	Audio    []byte        // the next bytes of the recording; may be empty, and is valid until yield returns
	Usage    *llm.Usage    // of the request so far, as in a [llm.ChatChunk]; nil if it is not known. Tokens of the completion are of audio
	Duration time.Duration // of the recording so far, for prices by time; zero if it is not known: then the Handler measures WAVE, PCM, MP3, AAC, FLAC and Opus, and takes a byte of others for a millisecond, which is hardly ever too little

	// ContentType is the media type of the recording, such as "audio/wav", for a Speaker that does not have the ResponseFormat of the
	// request. That of the first chunk with Audio counts; it must begin with "audio/", or it has no effect. Empty means the
	// ResponseFormat.
	ContentType string
}

// A SpeechRequest is the body of POST /v1/audio/speech. A Handler checks requests before it
// passes them to a [Speaker], and sets ResponseFormat and StreamFormat.
type SpeechRequest struct {
	Model          string      `json:"model"`
	Input          string      `json:"input"` // the text; see CheckLength
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

// Validate returns an [*llm.Error] for the first parameter that the format does not allow, and sets
// ResponseFormat and StreamFormat if they are empty. Functions that decode requests call it: see
// [ServeSpeech].
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

// CheckLength returns an [*llm.Error] if the Input or the Instructions have more than limit characters. Zero
// means 4096; negative means no limit.
func (r *SpeechRequest) CheckLength(limit int) error {
	limit = option.Bound(limit, 4096)
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

// countTokens counts the tokens of the texts of r.
func (r *SpeechRequest) countTokens(c tokens.Estimator) int {
	n := c.Text(r.Input) + c.Text(r.Instructions) + c.Extra(r.Extra) + c.Extra(r.Voice.Extra)
	for _, s := range []string{r.Model, r.Voice.Name, r.Voice.ID, r.ResponseFormat, r.StreamFormat} {
		n += c.Label(s)
	}
	return n
}

func (o *Options) serveSpeech(c *llmhttp.Call) error {
	req := new(SpeechRequest)
	if err := wire.Decode(c, speechRequestJSON, req, &req.Extra); err != nil {
		return err
	}
	if err := req.CheckLength(o.MaxSpeechInput); err != nil {
		return err
	}
	if req.StreamFormat == streamFormatSSE {
		return ServeSpeech(c, req, speechEvents{})
	}
	return ServeSpeech(c, req, speechBytes{req.contentType()})
}

// ServeSpeech serves a request that another wire format has, for the function of a route that a Protocol
// makes of [SpeechEndpoint] with [llmhttp.NewRoute]. That function reads the Body of c into a SpeechRequest
// and checks it by [SpeechRequest.Validate] and [SpeechRequest.CheckLength]; ServeSpeech, which then owns
// req, calls Reserve, Stream and Ask, and ends the reply, which encoder encodes.
func ServeSpeech(c *llmhttp.Call, req *SpeechRequest, encoder Encoder[SpeechChunk]) error {
	units := llmhttp.Units{Characters: int64(utf8.RuneCountInString(req.Input)), AudioMillis: req.expectedDuration().Milliseconds()}
	err := c.Reserve(llmhttp.Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return req.countTokens(wire.Estimator(c, req.Model)) },
		Units: &units, Stream: true, Params: llmhttp.RequestParams{Messages: 1, ResponseFormatType: req.ResponseFormat},
	})
	if err != nil {
		return err
	}
	var told time.Duration
	var recording recordingMeter
	contentType, framing := "", encoder.Framing() // of the recording, once it has begun, and of the reply
	isRecording := framing.ContentType == req.contentType()
	s := c.Stream(framing, encoder.AppendFailure)
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		return llmhttp.Used{}, llmhttp.AppendStream(s, speak(ctx, b, req), func(chunk *SpeechChunk) llmhttp.Progress {
			p := llmhttp.Progress{Usage: chunk.Usage, Units: &units, HasOutput: len(chunk.Audio) > 0, Size: len(chunk.Audio)}
			told = max(told, chunk.Duration)
			if contentType == "" && p.HasOutput {
				contentType = recordingType(chunk, req)
				recording.meter.BytesPerSecond = bytesPerSecond(contentType)
				if isRecording {
					p.ContentType = contentType
				}
			}
			recording.add(chunk.Audio)
			if units.AudioMillis = told.Milliseconds(); units.AudioMillis == 0 {
				units.AudioMillis, p.Estimated = recording.millis()
			}
			return p
		}, encoder.AppendChunk)
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}

var speak = ability.Stream(Speaker.Speak)

// recordingType returns the media type of the recording that begins with chunk.
func recordingType(chunk *SpeechChunk, req *SpeechRequest) string {
	if media, ok := headertext.MediaType(chunk.ContentType); ok && strings.HasPrefix(media, "audio/") {
		return media
	}
	return req.contentType()
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

// speechBytes is the encoder of replies that are the bytes of the recording. Nothing can be written
// between them, so that a failed one has no end of its own.
type speechBytes struct{ contentType string }

func (e speechBytes) Framing() llmhttp.Framing { return llmhttp.Framing{ContentType: e.contentType} }

func (speechBytes) AppendChunk(b []byte, c *SpeechChunk) ([]byte, error) {
	return append(b, c.Audio...), nil
}

func (speechBytes) AppendEnd(b []byte, _ *llm.Usage) ([]byte, error) { return b, nil }

func (speechBytes) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// usageJSON is that of the usage of audio.
var usageJSON = jsonwire.ObjectOf[llm.Usage]("media")

// speechEvents is the encoder of replies that are server-sent events.
type speechEvents struct{}

// maxEventAudio is how many bytes of audio one event may have: as base64, a line has less than the
// 64 KiB that some clients read.
const maxEventAudio = 24 << 10

func (speechEvents) Framing() llmhttp.Framing { return llmhttp.EventStream() }

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
	b, err := usageJSON.Append(b, u)
	return openai.AppendEventEnd(append(b, '}')), err
}

func (speechEvents) AppendFailure(b []byte, e *llm.Error) []byte {
	return openai.AppendErrorEvent(b, e)
}
