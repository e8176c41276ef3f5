package audio_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	transcriptionsPath = "/v1/audio/transcriptions"
	translationsPath   = "/v1/audio/translations"
)

// A transcribing is a Backend that transcribes.
type transcribing func(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream

func (transcribing) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b transcribing) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return b(ctx, req)
}

// writes returns a Backend that answers every request with chunks.
func writes(chunks ...*audio.TranscriptionChunk) transcribing {
	return func(context.Context, *audio.TranscriptionRequest) audio.TranscriptionStream {
		return transcript(chunks...)
	}
}

// transcript returns a stream of chunks.
func transcript(chunks ...*audio.TranscriptionChunk) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// spoken are the chunks of a transcription with everything.
func spoken() []*audio.TranscriptionChunk {
	return []*audio.TranscriptionChunk{
		{Text: "Hello ", Language: "english", Extra: llm.Extra{"logprobs": json.RawMessage(`[1]`)}},
		{Text: "world.", Duration: 8.47, Segments: []audio.TranscriptionSegment{
			{End: 1.5, Text: " Hello", Tokens: []int{7}, AvgLogprob: math.Inf(-1), Speaker: "A"},
			{ID: "s", Start: 1.5, End: 3661.25, Text: " world.\r\n\r\n<x> --> &", NoSpeechProb: 0.5},
		}, Words: []audio.TranscriptionWord{{Word: "Hello", End: 1}}, Extra: llm.Extra{"logprobs": json.RawMessage(`[2]`)}},
	}
}

// The replies in each format, whole and streamed.
func TestTranscriptions_Formats(t *testing.T) {
	const (
		segments = `[{"id":0,"seek":0,"start":0,"end":1.5,"text":" Hello","speaker":"A","tokens":[7],"temperature":0,"avg_logprob":0,"compression_ratio":0,"no_speech_prob":0},` +
			`{"id":1,"seek":0,"start":1.5,"end":3661.25,"text":" world.\r\n\r\n<x> --> &","tokens":[],"temperature":0,"avg_logprob":0,"compression_ratio":0,"no_speech_prob":0.5}]`
		first, second = `{"type":"transcript.text.segment","id":"seg_0","start":0,"end":1.5,"text":" Hello","speaker":"A"}`,
			`{"type":"transcript.text.segment","id":"s","start":1.5,"end":3661.25,"text":" world.\r\n\r\n<x> --> &","speaker":""}`
		usage, logprobs = `"usage":{"type":"duration","seconds":8.47}`, `"logprobs":[1,2]`
		deltas          = `data: {"type":"transcript.text.delta","delta":"Hello ","logprobs":[1]}` + "\n\n" + `data: {"type":"transcript.text.delta","delta":"world.","logprobs":[2]}` + "\n\n"
		done            = `data: {"type":"transcript.text.done","text":"Hello world.",` + usage + `,` + logprobs + "}\n\ndata: [DONE]\n\n"
		isJSON, isText  = "application/json", "text/plain; charset=utf-8"
		isEvents        = "text/event-stream; charset=utf-8"
	)
	for _, test := range []struct{ path, members, contentType, body string }{
		{transcriptionsPath, ``, isJSON, `{"text":"Hello world.",` + usage + `,` + logprobs + `}`},
		{translationsPath, `"response_format":"json"`, isJSON, `{"text":"Hello world.",` + usage + `,` + logprobs + `}`},
		{transcriptionsPath, `"response_format":"text"`, isText, "Hello world.\n"},
		{transcriptionsPath, `"response_format":"srt"`, isText,
			"1\n00:00:00,000 --> 00:00:01,500\nHello\n\n2\n00:00:01,500 --> 01:01:01,250\nworld.\n<x> -> &\n\n\n"},
		{translationsPath, `"response_format":"vtt"`, isText,
			"WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello\n\n00:00:01.500 --> 01:01:01.250\nworld.\n&lt;x> -> &amp;\n\n\n"},
		{transcriptionsPath, `"response_format":"verbose_json"`, isJSON,
			`{"task":"transcribe","language":"english","duration":8.47,"text":"Hello world.","segments":` + segments + `,` + usage + `,` + logprobs + `}`},
		{translationsPath, `"response_format":"verbose_json","timestamp_granularities[]":["segment","word"]`, isJSON,
			`{"task":"translate","language":"english","duration":8.47,"text":"Hello world.","segments":` + segments + `,"words":[{"word":"Hello","start":0,"end":1}],` + usage + `,` + logprobs + `}`},
		{transcriptionsPath, `"response_format":"verbose_json","timestamp_granularities":"[\"word\"]"`, isJSON,
			`{"task":"transcribe","language":"english","duration":8.47,"text":"Hello world.","words":[{"word":"Hello","start":0,"end":1}],` + usage + `,` + logprobs + `}`},
		{transcriptionsPath, `"response_format":"diarized_json"`, isJSON,
			`{"task":"transcribe","duration":8.47,"segments":[` + first + `,` + second + `],"text":"Hello world.",` + usage + `,` + logprobs + `}`},
		{transcriptionsPath, `"stream":true`, isEvents, deltas + done},
		{translationsPath, `"stream":"True","response_format":"text"`, isEvents, deltas + done},
		{transcriptionsPath, `"stream":1,"response_format":"diarized_json"`, isEvents, deltas + "data: " + first + "\n\ndata: " + second + "\n\n" + done},
	} {
		t.Run(test.path+" "+test.members, func(t *testing.T) {
			b := transcribing(func(_ context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
				assert.Equal(t, test.path == translationsPath, r.Translate)
				return transcript(spoken()...)
			})
			s := newServer(t, b, llmhttp.Options{})
			body := `{"file":"RIFF",` + test.members + `,"model":"m"}`
			w := s.Post(test.path, endpointtest.Form(t, strings.Replace(body, ",,", ",", 1)))
			assert.Equal(t, 200, w.Code)
			assert.Equal(t, test.contentType, w.Header().Get("Content-Type"))
			assert.Equal(t, test.body, w.Body.String())
			record := s.Records[0]
			assert.Equal(t, llmhttp.Units{AudioMillis: 8470}, record.Units)
			assert.False(t, record.Estimated)
			assert.Equal(t, audio.OperationTranscriptions, record.Operation)
			assert.Equal(t, strings.Contains(test.members, "stream"), s.Summaries[0].Streamed)
		})
	}
}

// What the Backend gets of a request, in whatever order and form its fields come.
func TestTranscriptions_Request(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	want := audio.TranscriptionRequest{
		Model: "m", Language: "de", Prompt: "p", ResponseFormat: "verbose_json", Temperature: new(0.5),
		TimestampGranularities: []string{"word", "segment"}, Include: []string{"logprobs"},
		Extra: map[string][]string{"keywords[]": {"a", "b"}, "chunking_strategy": {`{"type":"server_vad"}`}},
	}
	file, rest := `"file":"`+large+`"`, `"model":"m","language":"de","prompt":"p","response_format":"verbose_json","temperature":"5e-1","stream":false,"chunking_strategy":{"type":"server_vad"},"user":""`
	for name, body := range map[string]string{
		"file first": file + `,` + rest + `,"timestamp_granularities[]":["word","segment"],"include[]":"logprobs","keywords[]":["a","b"]`,
		"file last":  `"keywords[]":["a","b"],"include":"logprobs",` + rest + `,"timestamp_granularities":["word","segment"],` + file,
		"JSON":       rest + `,"timestamp_granularities":"[\"word\",\"segment\"]","include[]":"[\"logprobs\"]",` + file + `,"keywords[]":["a","b"]`,
	} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(name, func(t *testing.T) {
				var open io.Reader
				b := transcribing(func(ctx context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
					assert.Equal(t, "speech.mp3", r.File.Name)
					assert.Equal(t, "mp3", r.File.Extension())
					content, err := io.ReadAll(r.File.Open())
					assert.NoError(t, err)
					assert.Equal(t, large, string(content))
					open = r.File.Open()
					got := *r.Clone()
					assert.Equal(t, r.File, got.File)
					got.File = nil
					delete(got.Extra, "user")
					assert.Equal(t, want, got)
					info := llmhttp.RequestInfoFrom(ctx)
					assert.Equal(t, "verbose_json", info.Params.ResponseFormatType)
					assert.Equal(t, 0.5, *info.Params.Temperature)
					return transcript(spoken()...)
				})
				routes := audio.Routes(&audio.Options{Files: &form.Store{Dir: dir}})
				s := endpointtest.New(t, b, llmhttp.Key{}, llmhttp.Options{Routes: routes})
				assert.Equal(t, 200, s.Post(transcriptionsPath, endpointtest.Form(t, `{`+body+`}`)).Code)
				_, err := open.Read(make([]byte, 1))
				require.ErrorIs(t, err, fs.ErrClosed, "the request has ended")
			})
		}
	}
}

func TestTranscriptions_Mistakes(t *testing.T) {
	s := newServer(t, transcribing(func(context.Context, *audio.TranscriptionRequest) audio.TranscriptionStream { panic("called") }), llmhttp.Options{})
	for _, test := range []struct{ path, members, code, param string }{
		{transcriptionsPath, `"model":"m"`, "missing_required_parameter", "file"},
		{transcriptionsPath, `"model":"m","file":""`, "invalid_value", "file"},
		{transcriptionsPath, `"model":"m","file":["a","b"]`, "duplicate_parameter", "file"},
		{transcriptionsPath, `"file":"x"`, "missing_required_parameter", "model"},
		{transcriptionsPath, `"file":"x","model":""`, "missing_required_parameter", "model"},
		{transcriptionsPath, `"file":"x","model":["a","b"]`, "duplicate_parameter", "model"},
		{transcriptionsPath, `"file":"x","model":"m","model[]":"m"`, "unknown_parameter", "model[]"},
		{transcriptionsPath, `"file":"x","model":"m","Stream":true`, "unknown_parameter", "Stream"},
		{transcriptionsPath, `"file":"x","model":"m","response_format":"xml"`, "invalid_value", "response_format"},
		{translationsPath, `"file":"x","model":"m","response_format":"diarized_json"`, "invalid_value", "response_format"},
		{transcriptionsPath, `"file":"x","model":"m","temperature":1.01`, "decimal_above_max_value", "temperature"},
		{transcriptionsPath, `"file":"x","model":"m","temperature":-0.01`, "decimal_below_min_value", "temperature"},
		{transcriptionsPath, `"file":"x","model":"m","temperature":"NaN"`, "invalid_value", "temperature"},
		{transcriptionsPath, `"file":"x","model":"m","temperature":"warm"`, "invalid_value", "temperature"},
		{transcriptionsPath, `"file":"x","model":"m","stream":"yes"`, "invalid_value", "stream"},
		{transcriptionsPath, `"file":"x","model":"m","stream":true,"response_format":"srt"`, "invalid_value", "stream"},
		{transcriptionsPath, `"file":"x","model":"m","stream":true,"response_format":"vtt"`, "invalid_value", "stream"},
		{transcriptionsPath, `"file":"x","model":"m","timestamp_granularities[]":["word","page"]`, "invalid_value", "timestamp_granularities[1]"},
		{transcriptionsPath, `"file":"x","model":"m","timestamp_granularities":"[1]"`, "invalid_type", "timestamp_granularities"},
		{transcriptionsPath, `"file":"x","model":"m","include":"[` + strings.Repeat(`\"\",`, 64) + `\"\"]"`, "array_above_max_length", "include"},
		{transcriptionsPath, `"file":"x","model":"m","api_base":"http://x"`, "unknown_parameter", "api_base"},
		{transcriptionsPath, `"file":"x","model":"m","models[]":"x"`, "unknown_parameter", "models"},
	} {
		e := s.PostRefused(test.path, endpointtest.Form(t, `{`+test.members+`}`), 400)
		assert.Equal(t, test.code, e.Code, test.members)
		assert.Equal(t, test.param, e.Param, test.members)
	}
	assert.Empty(t, s.Records)
}

// Subtitles need segments. The client learns that before a byte of the reply was sent.
func TestTranscriptions_SubtitlesWithoutTimes(t *testing.T) {
	for _, format := range []string{"srt", "vtt"} {
		s := newServer(t, writes(&audio.TranscriptionChunk{Text: "Hello."}), llmhttp.Options{})
		e := s.PostRefused(transcriptionsPath, endpointtest.Form(t, `{"file":"x","model":"m","response_format":"`+format+`"}`), 400)
		assert.Equal(t, "response_format", e.Param)
		assert.NotZero(t, s.Records[0].Units, "the model has worked")
	}
	s := newServer(t, writes(&audio.TranscriptionChunk{}), llmhttp.Options{}) // nothing was said
	w := s.Post(transcriptionsPath, endpointtest.Form(t, `{"file":"x","model":"m","response_format":"vtt"}`))
	assert.Equal(t, "WEBVTT\n\n\n", w.Body.String())
}

// What is charged for: tokens if the Backend reports them, or else the time, or an estimate.
func TestTranscriptions_Usage(t *testing.T) {
	tokens := &llm.Usage{PromptTokens: 14, CompletionTokens: 3, PromptTokensDetails: llm.PromptTokensDetails{AudioTokens: 10}}
	const file = 32_000 // bytes, which are at most 32 seconds if nobody tells
	for name, test := range map[string]struct {
		chunk     audio.TranscriptionChunk
		units     llmhttp.Units
		estimated bool
		usage     string
	}{
		"tokens": {audio.TranscriptionChunk{Text: "a", Usage: &audio.TranscriptionUsage{Tokens: tokens}},
			llmhttp.Units{PromptTokens: 14, PromptAudioTokens: 10, CompletionTokens: 3}, false,
			`{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":3,"total_tokens":17}`},
		"tokens and time": {audio.TranscriptionChunk{Text: "a", Duration: 1.5, Usage: &audio.TranscriptionUsage{Tokens: tokens}},
			llmhttp.Units{PromptTokens: 14, PromptAudioTokens: 10, CompletionTokens: 3, AudioMillis: 1500}, false,
			`{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":3,"total_tokens":17}`},
		"another time": {audio.TranscriptionChunk{Text: "a", Duration: 8.47, Usage: &audio.TranscriptionUsage{Seconds: 9}},
			llmhttp.Units{AudioMillis: 9000}, false, `{"type":"duration","seconds":9}`},
		"the end of the last segment": {audio.TranscriptionChunk{Text: "a", Segments: []audio.TranscriptionSegment{{End: 2.5}, {Start: 2.5, End: 3.25}}},
			llmhttp.Units{AudioMillis: 3250}, false, `{"type":"duration","seconds":3.25}`},
		"nothing": {audio.TranscriptionChunk{Text: "Hello, you"},
			llmhttp.Units{PromptTokens: 168, CompletionTokens: 3, AudioMillis: 32_000}, true,
			`{"type":"tokens","input_tokens":168,"input_token_details":{"text_tokens":168,"audio_tokens":0},"output_tokens":3,"total_tokens":171}`},
	} {
		t.Run(name, func(t *testing.T) {
			var priced llmhttp.UsageRecord
			s := newServer(t, writes(&test.chunk), llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				priced = *r
				return llmhttp.Cost{Output: 7}, nil
			}})
			w := s.Post(transcriptionsPath, endpointtest.Form(t, `{"file":"`+strings.Repeat("x", file)+`","model":"m"}`))
			assert.Equal(t, `{"text":"`+test.chunk.Text+`","usage":`+test.usage+`}`, w.Body.String())
			record := s.Records[0]
			assert.Equal(t, test.units, record.Units)
			assert.Equal(t, test.units, priced.Units)
			assert.Equal(t, test.estimated, record.Estimated)
		})
	}
}

// A quota in money is reserved for the time that the size of the recording suggests.
func TestTranscriptions_QuotaInMoney(t *testing.T) {
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llm.Money(r.Units.AudioMillis)}, nil
	}
	key := llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: 1000}}}
	s := endpointtest.New(t, writes(spoken()...), key, llmhttp.Options{Price: price, Routes: audio.Routes(nil)})
	recording := func(millis int) string {
		return endpointtest.Form(t, `{"file":"`+strings.Repeat("x", millis)+`","model":"m"}`)
	}
	s.PostRefused(transcriptionsPath, recording(1001), 429)
	assert.Equal(t, 200, s.Post(transcriptionsPath, recording(1000)).Code)
}

// A character that chunks divide is sent when it is complete, and long texts in several events.
func TestTranscriptions_Deltas(t *testing.T) {
	long := strings.Repeat("äb", 6000)
	s := newServer(t, writes(&audio.TranscriptionChunk{Text: "a\xc3"}, &audio.TranscriptionChunk{Text: "\xa4" + long + "\xe2\x82"}), llmhttp.Options{})
	w := s.Post(transcriptionsPath, endpointtest.Form(t, `{"file":"x","model":"m","stream":true}`))
	var text strings.Builder
	var whole string
	for _, event := range events(t, w.Body.String()) {
		var e struct{ Type, Delta, Text string }
		if json.Unmarshal([]byte(event), &e) == nil {
			assert.LessOrEqual(t, len(e.Delta), 8<<10)
			text.WriteString(e.Delta)
			whole = e.Text
		}
	}
	assert.Equal(t, "aä"+long+"�", strings.TrimRight(text.String(), "�")+"�")
	assert.Equal(t, whole, text.String())
}

// A directory that is missing or full is a failure of the server, of which the client gets no detail.
func TestTranscriptions_FileIsNotStored(t *testing.T) {
	dir := t.TempDir()
	routes := audio.Routes(&audio.Options{Files: &form.Store{Dir: dir}})
	require.NoError(t, os.Remove(dir))
	s := endpointtest.New(t, writes(spoken()...), llmhttp.Key{}, llmhttp.Options{Routes: routes})
	e := s.PostRefused(transcriptionsPath, endpointtest.Form(t, `{"file":"x","model":"m"}`), 500)
	assert.Contains(t, e.Message, "The server had an error while processing your request.")
	assert.Contains(t, s.Log.String(), "Store.Dir")
	assert.Equal(t, llmhttp.ClassInternal, s.Summaries[0].ErrorClass)
}

func TestCollectTranscription(t *testing.T) {
	got, err := audio.CollectTranscription(transcript(spoken()...))
	require.NoError(t, err)
	assert.Equal(t, "Hello world.", got.Text)
	assert.Equal(t, "english", got.Language)
	assert.Len(t, got.Segments, 2)
	assert.JSONEq(t, `[1,2]`, string(got.Extra["logprobs"]))
	_, err = audio.CollectTranscription(transcript())
	require.Error(t, err)
}

// BenchmarkTranscription shows what the process allocates for a recording of 25 MB that the Backend
// reads to its end: with the file in memory, and in a temporary file.
func BenchmarkTranscription(b *testing.B) {
	body := []byte(endpointtest.Form(b, `{"file":"RECORDING","model":"m"}`))
	body = bytes.Replace(body, []byte("RECORDING"), bytes.Repeat([]byte("0123456789abcdef"), 25_000_000/16), 1)
	backend := transcribing(func(_ context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
		n, err := io.Copy(io.Discard, struct{ io.Reader }{r.File.Open()})
		if err != nil || n != 25_000_000 {
			b.Errorf("read %d bytes: %v", n, err)
		}
		return transcript(&audio.TranscriptionChunk{Text: "Hello.", Duration: 1})
	})
	for name, dir := range map[string]string{"memory": "", "file": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				return &llmhttp.Key{ID: "key_1", Account: "acme"}, nil
			})
			h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
				Routes: audio.Routes(&audio.Options{Files: &form.Store{Dir: dir}}), Logger: slog.New(slog.DiscardHandler),
			})
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r, err := http.NewRequest(http.MethodPost, transcriptionsPath, bytes.NewReader(body))
				require.NoError(b, err)
				r.Header.Set("Authorization", "Bearer sk-fixture")
				r.Header.Set("Content-Type", endpointtest.FormType)
				w := &statusWriter{header: make(http.Header)}
				h.ServeHTTP(w, r)
				require.Equal(b, 200, w.status)
			}
		})
	}
}

// A statusWriter is a ResponseWriter that keeps only the status.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }

// The time of a recording and of speech that nobody tells is read from their bytes, and of a format
// that is not known it is the longest that the size allows. A quota in money ends what they may use.
func TestAudio_LengthIsMeasured(t *testing.T) {
	// 23,872 Hz, 16 bits: the bytes are those of a text, which the forms of these tests need.
	wave := "RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x5d\x00\x00\x00\x00\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00" + strings.Repeat("x", 5*2*23_872)
	file := func(name string) string {
		content, err := os.ReadFile("../internal/audiolength/testdata/" + name)
		require.NoError(t, err)
		return string(content)
	}
	for name, test := range map[string]struct {
		recording string
		millis    int64
		unknown   bool
	}{
		"wav": {wave, 5000, false}, "mp3": {file("3000-vbr-xing.mp3"), 3000, false}, "opus": {file("3000.opus"), 3000, false},
		"flac": {file("3000-stream.flac"), 3000, false}, "aac": {file("3000.aac"), 3000, false}, "m4a": {file("unknown-3000.m4a"), 7315, true},
	} {
		t.Run(name, func(t *testing.T) {
			price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				return llmhttp.Cost{Output: llm.Money(r.Units.AudioMillis)}, nil
			}
			asked, err := json.Marshal(test.recording)
			require.NoError(t, err)
			if name == "wav" { // the others are no texts
				s := newServer(t, writes(&audio.TranscriptionChunk{Text: "Hello"}), llmhttp.Options{Price: price})
				require.Equal(t, 200, s.Post(transcriptionsPath, endpointtest.Form(t, `{"file":`+string(asked)+`,"model":"m"}`)).Code)
				assert.EqualValues(t, 5000, s.Records[0].Units.AudioMillis)
			}
			key := llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: 10_000}}}
			s := endpointtest.New(t, says(nil, pieces(test.recording[:1000], test.recording[1000:])...), key, llmhttp.Options{
				Price: price, Routes: audio.Routes(nil),
			})
			served := 0
			for range 50 {
				if s.Post(speechPath, speechBody).Code == 200 {
					served++
				}
			}
			assert.LessOrEqual(t, served, 4)
			for _, r := range s.Records {
				assert.InEpsilon(t, test.millis, r.Units.AudioMillis, 0.02)
				assert.Equal(t, test.unknown, r.Estimated)
				assert.Positive(t, r.Cost.Total())
			}
		})
	}
}
