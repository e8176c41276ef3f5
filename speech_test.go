package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
)

var _ = codectest.MakesConsistent(func(v *llmhttp.SpeechVoice) { v.Name = "" })

func init() {
	jsonSuite.Types["SpeechRequest"] = func() any { return new(llmhttp.SpeechRequest) }
	jsonSuite.Types["SpeechVoice"] = func() any { return new(llmhttp.SpeechVoice) }
	jsonSuite.Documents = append(jsonSuite.Documents, []codectest.Document{
		{"SpeechRequest", `{"model":"m","input":"i","voice":"alloy","instructions":"s","response_format":"pcm","speed":0.5,"stream_format":"sse","language":"de"}`},
		{"SpeechVoice", `"alloy"`}, {"SpeechVoice", `{"id":"voice_1","x":1}`},
	}...)
}

// speechWith returns speechBody with more members.
func speechWith(members string) string {
	return strings.TrimSuffix(speechBody, "}") + "," + members + "}"
}

func TestSpeech_Params(t *testing.T) {
	bodies := func(list ...string) []string { return list }
	members := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":"x","voice":"v",` + s + `}` }, list...)
	}
	voices := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":"x","voice":` + s + `}` }, list...)
	}
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	checkParams(t, startServer(t, config{}), speechPath, []paramTest{
		{"model", missing, bodies(`{}`, `{"input":"x","voice":"v"}`)},
		{"model", invalidType, bodies(`{"model":5,"input":"x","voice":"v"}`)},
		{"input", missing, bodies(`{"model":"m","voice":"v"}`, `{"model":"m","input":"","voice":"v"}`, `{"model":"m","input":null,"voice":"v"}`)},
		{"input", invalidType, bodies(`{"model":"m","input":["x"],"voice":"v"}`)},
		{"input", stringTooLong, bodies(`{"model":"m","input":` + long(4097) + `,"voice":"v"}`)},
		{"", accepted, bodies(`{"model":"m","input":` + long(4096) + `,"voice":"v"}`)},
		{"voice", missing, append(voices("null"), `{"model":"m","input":"x"}`)},
		{"voice", emptyString, voices(`""`)},
		{"voice", invalidType, voices("5", "[]", "true")},
		{"voice.id", missing, voices("{}", `{"id":""}`, `{"id":null}`)},
		{"voice.id", invalidType, voices(`{"id":5}`)},
		{"", accepted, voices(`"any name"`, `{"id":"voice_1234"}`, `{"id":"v","x":1}`)},
		{"instructions", invalidType, members(`"instructions":5`)},
		{"instructions", stringTooLong, members(`"instructions":` + long(4097))},
		{"response_format", invalidValue, members(`"response_format":"ogg"`, `"response_format":"MP3"`)},
		{"response_format", invalidType, members(`"response_format":{}`)},
		{"speed", decimalLow, members(`"speed":0.2499`, `"speed":0`, `"speed":-1`)},
		{"speed", decimalHigh, members(`"speed":4.01`, `"speed":1e30`)},
		{"speed", invalidType, members(`"speed":"1"`)},
		{"", accepted, members(`"speed":0.25`, `"speed":4`, `"speed":null`)},
		{"stream_format", invalidValue, members(`"stream_format":"json"`)},
		{"stream_format", invalidType, members(`"stream_format":true`)},
		{"", accepted, members(`"stream_format":"audio"`, `"stream_format":"sse"`, `"stream_format":null`, `"language":"de","volume_multiplier":2`)},
	})
}

// The reply has the Content-Type of the format, and is not sent with a length.
func TestSpeech_Formats(t *testing.T) {
	for format, want := range map[string]string{
		"": "audio/mpeg", "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav", "pcm": "audio/pcm",
	} {
		t.Run(format, func(t *testing.T) {
			var got *llmhttp.SpeechRequest
			s := startServer(t, config{backend: &stubBackend{speak: func(_ context.Context, r *llmhttp.SpeechRequest) llmhttp.SpeechStream {
				got = r
				return speech("\x00\xff", "", "data: x\n\n")
			}}})
			body := speechBody
			if format != "" {
				body = speechWith(`"response_format":"` + format + `"`)
			}
			r := s.do("POST", speechPath, body)
			require.NoError(t, r.err)
			assert.Equal(t, 200, r.StatusCode)
			assert.Equal(t, want, r.Header.Get("Content-Type"))
			assert.Equal(t, []string{"chunked"}, r.TransferEncoding)
			assert.Equal(t, "\x00\xffdata: x\n\n", r.body)
			r.checkHeaders(t)
			if format == "" {
				format = "mp3"
			}
			assert.Equal(t, format, got.ResponseFormat)
			assert.Equal(t, "audio", got.StreamFormat)
		})
	}
}

func TestSpeech_RequestReachesTheBackend(t *testing.T) {
	var got *llmhttp.SpeechRequest
	s := startServer(t, config{backend: &stubBackend{speak: func(_ context.Context, r *llmhttp.SpeechRequest) llmhttp.SpeechStream {
		got = r
		return speech("a")
	}}})
	s.do("POST", speechPath, `{"model":"tts-1","input":"Hi","voice":{"id":"v","x":1},"instructions":"slowly","response_format":"wav","speed":1.5,"stream_format":"sse","lang_code":"a"}`)
	assert.Equal(t, &llmhttp.SpeechRequest{
		Model: "tts-1", Input: "Hi", Voice: llmhttp.SpeechVoice{ID: "v", Extra: llm.Extra{"x": json.RawMessage("1")}}, Instructions: "slowly",
		ResponseFormat: "wav", Speed: new(1.5), StreamFormat: "sse", Extra: llm.Extra{"lang_code": json.RawMessage(`"a"`)},
	}, got)
}

// The events of a stream carry the audio in base64, and its end the usage.
func TestSpeech_Events(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	for name, tt := range map[string]struct {
		usage *llm.Usage
		want  string
	}{
		"tokens":    {&llm.Usage{PromptTokens: 14, CompletionTokens: 101}, `{"input_tokens":14,"output_tokens":101,"total_tokens":115}`},
		"no tokens": {nil, `{"input_tokens":0,"output_tokens":0,"total_tokens":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
				return func(yield func(*llmhttp.SpeechChunk, error) bool) {
					_ = yield(&llmhttp.SpeechChunk{Audio: []byte{0xff, 0}}, nil) && yield(nil, nil) &&
						yield(&llmhttp.SpeechChunk{Audio: []byte(long)}, nil) && yield(&llmhttp.SpeechChunk{Usage: tt.usage}, nil)
				}
			}}})
			r := s.do("POST", speechPath, speechEventsBody)
			require.NoError(t, r.err)
			assert.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
			events := r.events(t)
			assert.Equal(t, `{"type":"speech.audio.delta","audio":"/wA="}`, events[0])
			assert.Equal(t, `{"type":"speech.audio.done","usage":`+tt.want+`}`, events[len(events)-1])
			var audio []byte
			for _, e := range events[:len(events)-1] {
				var delta struct{ Audio []byte }
				require.NoError(t, json.Unmarshal([]byte(e), &delta))
				assert.Less(t, len(e), 64<<10, "clients read lines of that length")
				audio = append(audio, delta.Audio...)
			}
			assert.Equal(t, "\xff\x00"+long, string(audio))
		})
	}
}

// Each chunk reaches the client before the Backend yields the next one.
func TestSpeech_NothingIsHeldBack(t *testing.T) {
	for name, body := range map[string]string{"bytes": speechBody, "events": speechEventsBody} {
		t.Run(name, func(t *testing.T) {
			const chunks = 100
			received := make(chan int)
			s := startServer(t, config{backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
				return func(yield func(*llmhttp.SpeechChunk, error) bool) {
					audio := make([]byte, 480)
					for i := range chunks {
						for j := range audio { // which is the Backend's again
							audio[j] = byte(i)
						}
						if !yield(&llmhttp.SpeechChunk{Audio: audio}, nil) {
							return
						}
						assert.Equal(t, i, <-received)
					}
				}
			}}})
			resp, err := s.open(t.Context(), "POST", speechPath, body)
			require.NoError(t, err)
			defer resp.Body.Close()
			length := 480
			if name == "events" {
				length = len("data: {\"type\":\"speech.audio.delta\",\"audio\":\"\"}\n\n") + base64.StdEncoding.EncodedLen(480)
			}
			for i := range chunks {
				piece := make([]byte, length)
				_, err := io.ReadFull(resp.Body, piece)
				require.NoError(t, err)
				if name == "bytes" {
					assert.Equal(t, bytes.Repeat([]byte{byte(i)}, 480), piece)
				}
				received <- i
			}
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
		})
	}
}

// Nothing is written between the bytes of a recording, however long the Backend is silent.
func TestSpeech_BytesHaveNoKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
			return func(yield func(*llmhttp.SpeechChunk, error) bool) {
				for _, piece := range []string{"a", "b"} {
					time.Sleep(4 * time.Minute)
					if !yield(&llmhttp.SpeechChunk{Audio: []byte(piece)}, nil) {
						return
					}
				}
			}
		}}})
		r := s.do("POST", speechPath, speechBody)
		require.NoError(t, r.err)
		assert.Equal(t, "ab", r.body)
		assert.Contains(t, s.do("POST", speechPath, speechEventsBody).body, ": keep-alive\n")
	})
}

func TestSpeech_MaxInput(t *testing.T) {
	for _, tt := range []struct {
		limit, length int
		ok            bool
	}{{0, 4096, true}, {0, 4097, false}, {5, 5, true}, {5, 6, false}, {-1, 100_000, true}} {
		s := startServer(t, config{opts: llmhttp.Options{MaxSpeechInput: tt.limit}})
		r := s.do("POST", speechPath, fmt.Sprintf(`{"model":"m","voice":"v","input":%q}`, strings.Repeat("日", tt.length)))
		if tt.ok {
			assert.Equal(t, 200, r.StatusCode)
			assert.EqualValues(t, tt.length, s.record().Units.Characters)
			continue
		}
		e := r.checkError(t, 400)
		assert.Equal(t, "input", e.Param)
		assert.Contains(t, e.Message, fmt.Sprintf("maximum length %d, but got a string with length %d", max(tt.limit, 4096*(1-min(tt.limit, 1))), tt.length))
		assert.Empty(t, s.usage.records())
	}
}

// A record has the characters of the text, the tokens and the duration that the Backend reports,
// and nothing if the reply has no audio.
func TestSpeech_Record(t *testing.T) {
	stream := func(err error, chunks ...*llmhttp.SpeechChunk) llmhttp.SpeechStream {
		return func(yield func(*llmhttp.SpeechChunk, error) bool) {
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
	audio := []byte("abcd") // of a format that is not known, so that its time is an estimate
	for name, tt := range map[string]struct {
		stream llmhttp.SpeechStream
		want   llmhttp.Units
	}{
		"characters":     {stream(nil, &llmhttp.SpeechChunk{Audio: audio}), llmhttp.Units{Characters: 19, AudioMillis: 4}},
		"tokens":         {stream(nil, &llmhttp.SpeechChunk{Audio: audio, Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}}), llmhttp.Units{Characters: 19, PromptTokens: 5, CompletionTokens: 7, CompletionAudioTokens: 7}},
		"only the total": {stream(nil, &llmhttp.SpeechChunk{Audio: audio, Usage: &llm.Usage{TotalTokens: 7}}), llmhttp.Units{Characters: 19, PromptTokens: 5, CompletionTokens: 2, CompletionAudioTokens: 2}},
		"a duration": {stream(nil, &llmhttp.SpeechChunk{Duration: time.Second}, &llmhttp.SpeechChunk{Audio: audio, Duration: 2 * time.Second}, &llmhttp.SpeechChunk{Audio: audio}),
			llmhttp.Units{Characters: 19, AudioMillis: 2000}},
		"fails later": {stream(errCause, &llmhttp.SpeechChunk{Audio: audio}), llmhttp.Units{Characters: 19, AudioMillis: 4, PromptTokens: 5, CompletionTokens: 1, CompletionAudioTokens: 1}},
		"fails, with a duration": {stream(errCause, &llmhttp.SpeechChunk{Audio: audio, Duration: time.Second}),
			llmhttp.Units{Characters: 19, AudioMillis: 1000, PromptTokens: 5, CompletionTokens: 20, CompletionAudioTokens: 20}},
		"fails at once":  {stream(errCause), llmhttp.Units{}},
		"no audio":       {stream(nil, &llmhttp.SpeechChunk{Duration: time.Second}), llmhttp.Units{}},
		"fails, but was": {stream(errCause, &llmhttp.SpeechChunk{Usage: &llm.Usage{PromptTokens: 5}}), llmhttp.Units{PromptTokens: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream { return tt.stream }}})
			s.do("POST", speechPath, speechBody)
			r := s.record()
			assert.Equal(t, tt.want, r.Units)
			assert.Equal(t, name == "characters" || strings.HasPrefix(name, "fails later") || name == "fails, with a duration", r.Estimated)
			assert.Equal(t, llmhttp.OperationSpeech, r.Operation)
		})
	}
}

// A quota in money reserves what the characters cost.
func TestSpeech_QuotaInMoney(t *testing.T) {
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llmhttp.Money(r.Units.Characters)}, nil
	}
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 30}}), opts: llmhttp.Options{Price: price},
	})
	assert.Equal(t, 200, s.do("POST", speechPath, speechBody).StatusCode)
	assert.EqualValues(t, 19, s.record().Cost.Output)
	assert.Equal(t, "insufficient_quota", s.do("POST", speechPath, speechBody).checkError(t, 429).Code)
}

// After the first bytes, an error can only cut the connection, whose client has what came
// before.
func TestSpeech_FailsInMidStream(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := startServer(t, config{http2: http2, backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
			return func(yield func(*llmhttp.SpeechChunk, error) bool) {
				_ = yield(&llmhttp.SpeechChunk{Audio: []byte("abc")}, nil) && yield(&llmhttp.SpeechChunk{Audio: []byte("def")}, nil) && yield(nil, errCause)
			}
		}}})
		r := s.do("POST", speechPath, speechBody)
		require.Error(t, r.err)
		assert.Equal(t, "abcdef", r.body)
		r = s.do("POST", speechPath, speechEventsBody)
		assert.Equal(t, internalMessage, r.checkCut(t).Message)
	}
}

// A reply that is too large is cut.
func TestSpeech_MaxReply(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{MaxReply: 5}, backend: &stubBackend{speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
		return speech("abcde", "f")
	}}})
	r := s.do("POST", speechPath, speechBody)
	require.Error(t, r.err)
	assert.Equal(t, "abcde", r.body)
	assert.ErrorContains(t, s.summary().Err, "too large")
}

// A wholeSpeech is a SpeechEncoder of replies that are sent at once.
type wholeSpeech struct{ err error }

func (wholeSpeech) Framing() llmhttp.Framing {
	return llmhttp.Framing{Whole: true, ContentType: "text/plain"}
}
func (wholeSpeech) AppendChunk(b []byte, c *llmhttp.SpeechChunk) ([]byte, error) {
	return append(b, c.Audio...), nil
}
func (e wholeSpeech) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	return append(b, " end"...), e.err
}
func (wholeSpeech) AppendFailure(b []byte, _ *llm.Error) []byte { return append(b, " failure"...) }

// A Protocol may send speech in a form of its own, also as a whole reply.
func TestBindSpeech(t *testing.T) {
	assert.Panics(t, func() { llmhttp.BindSpeech(nil) })
	req := func() *llmhttp.SpeechRequest {
		return &llmhttp.SpeechRequest{Model: "m", Input: "x", Voice: llmhttp.SpeechVoice{Name: "v"}}
	}
	for name, tt := range map[string]struct {
		req     *llmhttp.SpeechRequest
		encoder llmhttp.SpeechEncoder
		err     error
		status  int
		body    string
	}{
		"whole":          {req(), wholeSpeech{}, nil, 200, "One, two. end"},
		"failing":        {req(), wholeSpeech{errCause}, nil, 500, internalMessage},
		"error":          {nil, nil, llm.Errorf(409, "", "no"), 409, "no"},
		"nothing":        {nil, nil, nil, 500, internalMessage},
		"no encoder":     {req(), nil, nil, 500, internalMessage},
		"too long":       {&llmhttp.SpeechRequest{Model: "m", Input: strings.Repeat("x", 4097)}, wholeSpeech{}, nil, 400, "string too long"},
		"no ContentType": {req(), noContentType{}, nil, 500, internalMessage},
	} {
		t.Run(name, func(t *testing.T) {
			p := speechProtocol{llmhttp.ChatCompletions(), llmhttp.BindSpeech(func(context.Context, *http.Request, []byte) (*llmhttp.SpeechRequest, llmhttp.SpeechEncoder, error) {
				return tt.req, tt.encoder, tt.err
			})}
			s := startServer(t, config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{p}}})
			r := s.do("POST", "/speak", "{}")
			require.NoError(t, r.err)
			assert.Equal(t, tt.status, r.StatusCode)
			assert.Contains(t, r.body, tt.body)
		})
	}
}

type noContentType struct{ wholeSpeech }

func (noContentType) Framing() llmhttp.Framing { return llmhttp.Framing{Whole: true} }

// A speechProtocol serves POST /speak.
type speechProtocol struct {
	llmhttp.Protocol
	bind llmhttp.Binding
}

func (p speechProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /speak", Bind: p.bind}}
}
