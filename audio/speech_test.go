package audio_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	speechPath       = "/v1/audio/speech"
	speechBody       = `{"model":"demo-speech","input":"Hello, how are you?","voice":"alloy"}`
	speechEventsBody = `{"model":"demo-speech","input":"Hello, how are you?","voice":"alloy","stream_format":"sse"}`
)

// A speaking is a Backend that speaks.
type speaking func(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream

func (speaking) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b speaking) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return b(ctx, req)
}

// says returns a Backend that yields chunks, and then err unless that is nil.
func says(err error, chunks ...*audio.SpeechChunk) speaking {
	return func(context.Context, *audio.SpeechRequest) audio.SpeechStream {
		return func(yield func(*audio.SpeechChunk, error) bool) {
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
}

// pieces returns a chunk for each piece of audio.
func pieces(list ...string) (chunks []*audio.SpeechChunk) {
	for _, p := range list {
		chunks = append(chunks, &audio.SpeechChunk{Audio: []byte(p)})
	}
	return chunks
}

// newServer returns a Server with the routes of package audio, whose key may do everything.
func newServer(t testing.TB, b llmhttp.Backend, opts llmhttp.Options) *endpointtest.Server {
	opts.Routes = audio.Routes(nil)
	return endpointtest.New(t, b, llmhttp.Key{}, opts)
}

// startServer starts a server, which ends with t, with the routes of package audio.
func startServer(t *testing.T, b llmhttp.Backend, http2 bool, opts llmhttp.Options) *httptest.Server {
	opts.Routes, opts.Logger = audio.Routes(nil), slog.New(slog.DiscardHandler)
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key_1", Account: "acme"}, nil
	})
	srv := httptest.NewUnstartedServer(llmhttp.NewHandler(b, keys, &opts))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	if srv.EnableHTTP2 = http2; http2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

// open posts a request to a server and returns when the head of the reply has come.
func open(t *testing.T, srv *httptest.Server, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer sk-fixture")
	r.Header.Set("Content-Type", "application/json")
	resp, err := srv.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// events returns the data of the events in body.
func events(t *testing.T, body string) []string {
	t.Helper()
	body, ok := strings.CutSuffix(body, "\n\n")
	require.True(t, ok, body)
	list := strings.Split(body, "\n\n")
	for i := range list {
		list[i], ok = strings.CutPrefix(list[i], "data: ")
		require.True(t, ok, body)
	}
	return list
}

// speechWith returns speechBody with more members.
func speechWith(members string) string {
	return strings.TrimSuffix(speechBody, "}") + "," + members + "}"
}

func TestSpeech_Params(t *testing.T) {
	bodies := func(list ...string) []string { return list }
	each := func(format string, list []string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, fmt.Sprintf(format, s))
		}
		return bodies
	}
	members := func(list ...string) []string { return each(`{"model":"m","input":"x","voice":"v",%s}`, list) }
	voices := func(list ...string) []string { return each(`{"model":"m","input":"x","voice":%s}`, list) }
	long := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	newServer(t, says(nil, pieces("a")...), llmhttp.Options{}).CheckParams(t, speechPath, []endpointtest.Param{
		{"model", "missing_required_parameter", bodies(`{}`, `{"input":"x","voice":"v"}`)},
		{"model", "invalid_type", bodies(`{"model":5,"input":"x","voice":"v"}`)},
		{"input", "missing_required_parameter", bodies(`{"model":"m","voice":"v"}`, `{"model":"m","input":"","voice":"v"}`, `{"model":"m","input":null,"voice":"v"}`)},
		{"input", "invalid_type", bodies(`{"model":"m","input":["x"],"voice":"v"}`)},
		{"input", "string_above_max_length", bodies(`{"model":"m","input":` + long(4097) + `,"voice":"v"}`)},
		{"", endpointtest.Accepted, bodies(`{"model":"m","input":` + long(4096) + `,"voice":"v"}`)},
		{"voice", "missing_required_parameter", append(voices("null"), `{"model":"m","input":"x"}`)},
		{"voice", "empty_string", voices(`""`)},
		{"voice", "invalid_type", voices("5", "[]", "true")},
		{"voice.id", "missing_required_parameter", voices("{}", `{"id":""}`, `{"id":null}`)},
		{"voice.id", "invalid_type", voices(`{"id":5}`)},
		{"", endpointtest.Accepted, voices(`"any name"`, `{"id":"voice_1234"}`, `{"id":"v","x":1}`)},
		{"instructions", "invalid_type", members(`"instructions":5`)},
		{"instructions", "string_above_max_length", members(`"instructions":` + long(4097))},
		{"response_format", "invalid_value", members(`"response_format":"ogg"`, `"response_format":"MP3"`)},
		{"response_format", "invalid_type", members(`"response_format":{}`)},
		{"speed", "decimal_below_min_value", members(`"speed":0.2499`, `"speed":0`, `"speed":-1`)},
		{"speed", "decimal_above_max_value", members(`"speed":4.01`, `"speed":1e30`)},
		{"speed", "invalid_type", members(`"speed":"1"`)},
		{"", endpointtest.Accepted, members(`"speed":0.25`, `"speed":4`, `"speed":null`)},
		{"stream_format", "invalid_value", members(`"stream_format":"json"`)},
		{"stream_format", "invalid_type", members(`"stream_format":true`)},
		{"", endpointtest.Accepted, members(`"stream_format":"audio"`, `"stream_format":"sse"`, `"stream_format":null`, `"language":"de","volume_multiplier":2`)},
	})
}

// The reply has the Content-Type of the format, and is not sent with a length.
func TestSpeech_Formats(t *testing.T) {
	for format, want := range map[string]string{
		"": "audio/mpeg", "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav", "pcm": "audio/pcm",
	} {
		t.Run(format, func(t *testing.T) {
			var got *audio.SpeechRequest
			b := speaking(func(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
				got = r
				return says(nil, pieces("\x00\xff", "", "data: x\n\n")...)(ctx, r)
			})
			body := speechBody
			if format != "" {
				body = speechWith(`"response_format":"` + format + `"`)
			}
			w := newServer(t, b, llmhttp.Options{}).Post(speechPath, body)
			assert.Equal(t, 200, w.Code)
			assert.Equal(t, want, w.Header().Get("Content-Type"))
			assert.Empty(t, w.Header().Get("Content-Length"))
			assert.NotEmpty(t, w.Header().Get("X-Request-Id"))
			assert.Equal(t, "\x00\xffdata: x\n\n", w.Body.String())
			if format == "" {
				format = "mp3"
			}
			assert.Equal(t, format, got.ResponseFormat)
			assert.Equal(t, "audio", got.StreamFormat)
		})
	}
}

func TestSpeech_RequestReachesTheBackend(t *testing.T) {
	var got *audio.SpeechRequest
	b := speaking(func(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
		got = r
		return says(nil, pieces("a")...)(ctx, r)
	})
	newServer(t, b, llmhttp.Options{}).Post(speechPath, `{"model":"tts-1","input":"Hi","voice":{"id":"v","x":1},"instructions":"slowly","response_format":"wav","speed":1.5,"stream_format":"sse","lang_code":"a"}`)
	assert.Equal(t, &audio.SpeechRequest{
		Model: "tts-1", Input: "Hi", Voice: audio.SpeechVoice{ID: "v", Extra: llm.Extra{"x": json.RawMessage("1")}}, Instructions: "slowly",
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
			b := says(nil, &audio.SpeechChunk{Audio: []byte{0xff, 0}}, nil, &audio.SpeechChunk{Audio: []byte(long)}, &audio.SpeechChunk{Usage: tt.usage})
			w := newServer(t, b, llmhttp.Options{}).Post(speechPath, speechEventsBody)
			assert.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
			events := events(t, w.Body.String())
			assert.Equal(t, `{"type":"speech.audio.delta","audio":"/wA="}`, events[0])
			assert.Equal(t, `{"type":"speech.audio.done","usage":`+tt.want+`}`, events[len(events)-1])
			var spoken []byte
			for _, e := range events[:len(events)-1] {
				var delta struct{ Audio []byte }
				require.NoError(t, json.Unmarshal([]byte(e), &delta))
				assert.Less(t, len(e), 64<<10, "clients read lines of that length")
				spoken = append(spoken, delta.Audio...)
			}
			assert.Equal(t, "\xff\x00"+long, string(spoken))
		})
	}
}

// Each chunk reaches the client before the Backend yields the next one.
func TestSpeech_NothingIsHeldBack(t *testing.T) {
	for name, body := range map[string]string{"bytes": speechBody, "events": speechEventsBody} {
		t.Run(name, func(t *testing.T) {
			const chunks = 100
			received := make(chan int)
			srv := startServer(t, speaking(func(context.Context, *audio.SpeechRequest) audio.SpeechStream {
				return func(yield func(*audio.SpeechChunk, error) bool) {
					piece := make([]byte, 480)
					for i := range chunks {
						for j := range piece { // which is the Backend's again
							piece[j] = byte(i)
						}
						if !yield(&audio.SpeechChunk{Audio: piece}, nil) {
							return
						}
						assert.Equal(t, i, <-received)
					}
				}
			}), false, llmhttp.Options{})
			resp := open(t, srv, speechPath, body)
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
			_, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
		})
	}
}

// Nothing is written between the bytes of a recording, however long the Backend is silent.
func TestSpeech_BytesHaveNoKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, speaking(func(context.Context, *audio.SpeechRequest) audio.SpeechStream {
			return func(yield func(*audio.SpeechChunk, error) bool) {
				for _, piece := range []string{"a", "b"} {
					time.Sleep(4 * time.Minute)
					if !yield(&audio.SpeechChunk{Audio: []byte(piece)}, nil) {
						return
					}
				}
			}
		}), llmhttp.Options{})
		assert.Equal(t, "ab", s.Post(speechPath, speechBody).Body.String())
		assert.Contains(t, s.Post(speechPath, speechEventsBody).Body.String(), ": keep-alive\n")
	})
}

func TestSpeech_MaxInput(t *testing.T) {
	for _, tt := range []struct {
		limit, length int
		ok            bool
	}{{0, 4096, true}, {0, 4097, false}, {5, 5, true}, {5, 6, false}, {-1, 100_000, true}} {
		s := endpointtest.New(t, says(nil, pieces("a")...), llmhttp.Key{}, llmhttp.Options{Routes: audio.Routes(&audio.Options{MaxSpeechInput: tt.limit})})
		body := fmt.Sprintf(`{"model":"m","voice":"v","input":%q}`, strings.Repeat("日", tt.length))
		if tt.ok {
			assert.Equal(t, 200, s.Post(speechPath, body).Code)
			assert.EqualValues(t, tt.length, s.Records[0].Units.Characters)
			continue
		}
		e := s.PostRefused(speechPath, body, 400)
		assert.Equal(t, "input", e.Param)
		assert.Contains(t, e.Message, fmt.Sprintf("maximum length %d, but got a string with length %d", max(tt.limit, 4096*(1-min(tt.limit, 1))), tt.length))
		assert.Empty(t, s.Records)
	}
}

// A record has the characters of the text, the tokens and the duration that the Backend reports,
// and nothing if the reply has no audio.
func TestSpeech_Record(t *testing.T) {
	spoken := []byte("abcd") // of a format that is not known, so that its time is an estimate
	for name, tt := range map[string]struct {
		backend speaking
		want    llmhttp.Units
	}{
		"characters":     {says(nil, &audio.SpeechChunk{Audio: spoken}), llmhttp.Units{Characters: 19, AudioMillis: 4}},
		"tokens":         {says(nil, &audio.SpeechChunk{Audio: spoken, Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}}), llmhttp.Units{Characters: 19, PromptTokens: 5, CompletionTokens: 7, CompletionAudioTokens: 7}},
		"only the total": {says(nil, &audio.SpeechChunk{Audio: spoken, Usage: &llm.Usage{TotalTokens: 7}}), llmhttp.Units{Characters: 19, PromptTokens: 5, CompletionTokens: 2, CompletionAudioTokens: 2}},
		"a duration": {says(nil, &audio.SpeechChunk{Duration: time.Second}, &audio.SpeechChunk{Audio: spoken, Duration: 2 * time.Second}, &audio.SpeechChunk{Audio: spoken}),
			llmhttp.Units{Characters: 19, AudioMillis: 2000}},
		"fails later": {says(assert.AnError, &audio.SpeechChunk{Audio: spoken}), llmhttp.Units{Characters: 19, AudioMillis: 4, PromptTokens: 5, CompletionTokens: 1, CompletionAudioTokens: 1}},
		"fails, with a duration": {says(assert.AnError, &audio.SpeechChunk{Audio: spoken, Duration: time.Second}),
			llmhttp.Units{Characters: 19, AudioMillis: 1000, PromptTokens: 5, CompletionTokens: 20, CompletionAudioTokens: 20}},
		"fails at once":  {says(assert.AnError), llmhttp.Units{}},
		"no audio":       {says(nil, &audio.SpeechChunk{Duration: time.Second}), llmhttp.Units{}},
		"fails, but was": {says(assert.AnError, &audio.SpeechChunk{Usage: &llm.Usage{PromptTokens: 5}}), llmhttp.Units{PromptTokens: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s := newServer(t, tt.backend, llmhttp.Options{})
			func() {
				defer func() { _ = recover() }() // http.ErrAbortHandler, of a stream that has failed
				w = s.Post(speechPath, speechBody)
			}()
			require.Len(t, s.Records, 1, w.Body)
			r := s.Records[0]
			assert.Equal(t, tt.want, r.Units)
			assert.Equal(t, name == "characters" || strings.HasPrefix(name, "fails later") || name == "fails, with a duration", r.Estimated)
			assert.Equal(t, audio.OperationSpeech, r.Operation)
		})
	}
}

// A quota in money reserves what the characters cost.
func TestSpeech_QuotaInMoney(t *testing.T) {
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llm.Money(r.Units.Characters)}, nil
	}
	key := llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: 30}}}
	s := endpointtest.New(t, says(nil, pieces("a")...), key, llmhttp.Options{Price: price, Routes: audio.Routes(nil)})
	assert.Equal(t, 200, s.Post(speechPath, speechBody).Code)
	assert.EqualValues(t, 19, s.Records[0].Cost.Output)
	assert.Equal(t, "insufficient_quota", s.PostRefused(speechPath, speechBody, 429).Code)
}

// After the first bytes, an error can only cut the connection, whose client has what came
// before.
func TestSpeech_FailsInMidStream(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		srv := startServer(t, says(assert.AnError, pieces("abc", "def")...), http2, llmhttp.Options{})
		body, err := io.ReadAll(open(t, srv, speechPath, speechBody).Body)
		require.Error(t, err)
		assert.Equal(t, "abcdef", string(body))
		body, err = io.ReadAll(open(t, srv, speechPath, speechEventsBody).Body)
		require.Error(t, err)
		list := events(t, string(body))
		assert.Contains(t, list[len(list)-1], `{"error":{"message":"The server had an error while processing your request.`)
	}
}

// A reply that is too large is cut.
func TestSpeech_MaxReply(t *testing.T) {
	srv := startServer(t, says(nil, pieces("abcde", "f")...), false, llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: 5}})
	body, err := io.ReadAll(open(t, srv, speechPath, speechBody).Body)
	require.Error(t, err)
	assert.Equal(t, "abcde", string(body))
}

// A Speaker may have another format than the one that was asked for, and says so with the first audio. What is no audio has no
// effect, and neither has what comes later, or for events.
func TestSpeech_ContentType(t *testing.T) {
	for name, test := range map[string]struct {
		body  string
		types []string // of the chunks; the first has no audio
		want  string
	}{
		"another format":    {speechBody, []string{"audio/flac", "audio/wav", "audio/flac"}, "audio/wav"},
		"with a parameter":  {speechBody, []string{"", "audio/L16;rate=8000"}, "audio/l16; rate=8000"},
		"only later":        {speechBody, []string{"", "", "audio/wav"}, "audio/mpeg"},
		"a page":            {speechBody, []string{"", "text/html"}, "audio/mpeg"},
		"no media type":     {speechBody, []string{"", "audio/wav\r\nX: y"}, "audio/mpeg"},
		"events":            {speechEventsBody, []string{"", "audio/wav"}, "text/event-stream; charset=utf-8"},
		"of another format": {speechWith(`"response_format":"flac"`), []string{"", "audio/flac"}, "audio/flac"},
	} {
		t.Run(name, func(t *testing.T) {
			chunks := pieces(append([]string{""}, strings.Split(strings.Repeat("abcd ", len(test.types)-1), " ")[:len(test.types)-1]...)...)
			for i, contentType := range test.types {
				chunks[i].ContentType = contentType
			}
			w := newServer(t, says(nil, chunks...), llmhttp.Options{}).Post(speechPath, test.body)
			require.Equal(t, 200, w.Code)
			assert.Equal(t, test.want, w.Header().Get("Content-Type"))
		})
	}
}
