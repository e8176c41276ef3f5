// Package audio serves speech, which models make of texts, and transcriptions and translations of what is
// spoken in recordings.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: audio.Routes(nil)})
//
// The Handler then serves POST /v1/audio/speech if [llmhttp.As] finds a [Speaker] in the Backend, and POST
// /v1/audio/transcriptions and POST /v1/audio/translations if it finds a [Transcriber]. Otherwise clients
// get a 404. A key needs the scope "speech" or "transcriptions", unless its Scopes are nil. Recordings are
// measured: those that clients send, and those of a Speaker that does not tell how long they are.
//
// Seconds of audio are limited only by a [llmhttp.Quota] in money: a transcription that is charged by time
// counts no tokens. Before the Backend is called, the time is read from a recording in WAVE, MP3, AAC in
// ADTS, FLAC or Ogg. Of others, such as MP4 and WebM, it is the longest that the size allows, at 8 kbit/s:
// far too much for most. The tokens are those of a recording in a chat.
//
// A recording is complete before the Backend is called, because the model may come after it in the form.
// Subtitles need a Transcriber that yields segments, and are not streamed.
package audio

import (
	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

// The operations.
const (
	OperationSpeech         llmhttp.Operation = "speech"         // speaking a text
	OperationTranscriptions llmhttp.Operation = "transcriptions" // writing down what is spoken in a recording, or translating it
)

// The scopes of the operations.
const (
	ScopeSpeech         llmhttp.Scope = "speech"
	ScopeTranscriptions llmhttp.Scope = "transcriptions" // and of translations
)

// What the routes of this package are made of, for Protocols with routes of their own: see [ServeSpeech] and
// [ServeTranscription]. They must not be changed.
var (
	SpeechEndpoint = &llmhttp.Endpoint{
		Operation: OperationSpeech, Scope: ScopeSpeech, Supported: llmhttp.Has[Speaker], Output: llmhttp.OutputAudio,
	}
	TranscriptionEndpoint = &llmhttp.Endpoint{
		Operation: OperationTranscriptions, Scope: ScopeTranscriptions, Supported: llmhttp.Has[Transcriber], Output: llmhttp.OutputText,
	}
)

func init() {
	endpoints.Register(string(OperationSpeech), SpeechEndpoint.Supported)
	endpoints.Register(string(OperationTranscriptions), TranscriptionEndpoint.Supported)
}

// Options are those of the routes. The zero value is ready to use.
type Options struct {
	// Files keeps the recordings that clients send, and bounds their size, while the requests are served. Nil
	// means a new one, with the defaults of a Store.
	Files *form.Store

	// MaxSpeechInput is how many characters, which are Unicode code points, the text to speak may
	// have, and the instructions for it. Zero means 4096; negative means no limit but that of the Handler
	// for bodies.
	MaxSpeechInput int
}

// Routes returns new Routes for Options.Routes of package llmhttp. Nil is like the zero value. It panics if
// Files.Validate returns an error.
func Routes(o *Options) []llmhttp.Route {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Files = wire.Files("audio", opts.Files)
	return []llmhttp.Route{
		llmhttp.NewRoute("POST /v1/audio/speech", SpeechEndpoint, opts.serveSpeech),
		llmhttp.NewRoute("POST /v1/audio/transcriptions", TranscriptionEndpoint, func(c *llmhttp.Call) error {
			return opts.serveTranscription(c, new(TranscriptionRequest))
		}),
		llmhttp.NewRoute("POST /v1/audio/translations", TranscriptionEndpoint, func(c *llmhttp.Call) error {
			return opts.serveTranscription(c, &TranscriptionRequest{Translate: true})
		}),
	}
}

// An Encoder encodes the reply to one request, for [ServeSpeech] and [ServeTranscription]. Its methods are
// not called concurrently. A reply is any number of AppendChunk, and AppendEnd. They append to b, which is
// only valid during the call, and return the result.
type Encoder[Chunk any] interface {
	// Framing returns how the reply is sent. It is called once, before the other methods and
	// before the Backend is called.
	Framing() llmhttp.Framing

	// AppendChunk adds a chunk, which is only valid during the call, as is the Audio of a [SpeechChunk], which
	// may be empty. An error fails the request, and the Backend must stop.
	AppendChunk(b []byte, c *Chunk) ([]byte, error)

	// AppendEnd ends a reply that is complete. The usage is that which is recorded; it is zero if the
	// Backend reports characters or a time in place of tokens.
	AppendEnd(b []byte, u *llm.Usage) ([]byte, error)

	// AppendFailure ends a stream that failed. See Framing.EndsCleanly.
	AppendFailure(b []byte, e *llm.Error) []byte
}
