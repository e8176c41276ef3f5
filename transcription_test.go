package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"runtime"
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

var _ = codectest.MakesConsistent(func(c *llmhttp.TranscriptionChunk) { c.Usage = &llmhttp.TranscriptionUsage{Seconds: 8.5} })

// transcribing returns a Backend that answers every request with f.
func transcribing(f func(ctx context.Context, r *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream) *stubBackend {
	return &stubBackend{transcribe: f}
}

// transcribingAs returns a Backend that answers every request with chunks.
func transcribingAs(chunks ...*llmhttp.TranscriptionChunk) *stubBackend {
	return transcribing(func(context.Context, *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
		return transcript(chunks...)
	})
}

// spoken are the chunks of a transcription with everything.
func spoken() []*llmhttp.TranscriptionChunk {
	return []*llmhttp.TranscriptionChunk{
		{Text: "Hello ", Language: "english", Extra: llm.Extra{"logprobs": json.RawMessage(`[1]`)}},
		{Text: "world.", Duration: 8.47, Segments: []llmhttp.TranscriptionSegment{
			{End: 1.5, Text: " Hello", Tokens: []int{7}, AvgLogprob: math.Inf(-1), Speaker: "A"},
			{ID: "s", Start: 1.5, End: 3661.25, Text: " world.\r\n\r\n<x> --> &", NoSpeechProb: 0.5},
		}, Words: []llmhttp.TranscriptionWord{{Word: "Hello", End: 1}}, Extra: llm.Extra{"logprobs": json.RawMessage(`[2]`)}},
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
			b := transcribing(func(_ context.Context, r *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
				assert.Equal(t, test.path == translationsPath, r.Translate)
				return transcript(spoken()...)
			})
			s := startServer(t, config{backend: b})
			body := `{"file":"RIFF",` + test.members + `,"model":"m"}`
			r := s.do("POST", test.path, strings.Replace(body, ",,", ",", 1))
			require.NoError(t, r.err)
			assert.Equal(t, 200, r.StatusCode)
			assert.Equal(t, test.contentType, r.Header.Get("Content-Type"))
			assert.Equal(t, test.body, r.body)
			record := s.record()
			assert.Equal(t, llmhttp.Units{AudioMillis: 8470}, record.Units)
			assert.False(t, record.Estimated)
			assert.Equal(t, llmhttp.OperationTranscriptions, record.Operation)
			assert.Equal(t, strings.Contains(test.members, "stream"), s.summary().Streamed)
		})
	}
}

// What the Backend gets of a request, in whatever order and form its fields come.
func TestTranscriptions_Request(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	want := llmhttp.TranscriptionRequest{
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
				b := transcribing(func(ctx context.Context, r *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
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
				s := startServer(t, config{backend: b, opts: llmhttp.Options{FileDir: dir}})
				assert.Equal(t, 200, s.do("POST", transcriptionsPath, `{`+body+`}`).StatusCode)
				s.waitForSummaries(1)
				_, err := open.Read(make([]byte, 1))
				require.ErrorIs(t, err, fs.ErrClosed, "the request has ended")
			})
		}
	}
}

func TestTranscriptions_Mistakes(t *testing.T) {
	s := startServer(t, config{backend: transcribing(func(context.Context, *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream { panic("called") })})
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
		e := s.do("POST", test.path, `{`+test.members+`}`).checkError(t, 400)
		assert.Equal(t, test.code, e.Code, test.members)
		assert.Equal(t, test.param, e.Param, test.members)
	}
	assert.Empty(t, s.usage.records())
}

// Subtitles need segments. The client learns that before a byte of the reply was sent.
func TestTranscriptions_SubtitlesWithoutTimes(t *testing.T) {
	for _, format := range []string{"srt", "vtt"} {
		s := startServer(t, config{backend: transcribingAs(&llmhttp.TranscriptionChunk{Text: "Hello."})})
		e := s.do("POST", transcriptionsPath, `{"file":"x","model":"m","response_format":"`+format+`"}`).checkError(t, 400)
		assert.Equal(t, "response_format", e.Param)
		assert.NotZero(t, s.record().Units, "the model has worked")
	}
	s := startServer(t, config{backend: transcribingAs(&llmhttp.TranscriptionChunk{})}) // nothing was said
	assert.Equal(t, "WEBVTT\n\n\n", s.do("POST", transcriptionsPath, `{"file":"x","model":"m","response_format":"vtt"}`).body)
}

// The Backend learns of a recording only when the key, its model and its limits allow it. A recording
// that is too large gets a 413 before it was read, or as soon as it is known to be.
func TestTranscriptions_AreCheckedFirst(t *testing.T) {
	key := testKey()
	key.Models, key.Limits = []string{"good"}, llmhttp.Limits{Tokens: llmhttp.Rate{N: 200, Per: time.Hour}}
	called := 0
	b := transcribing(func(context.Context, *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
		called++
		return transcript(spoken()...)
	})
	dir := t.TempDir()
	s := startServer(t, config{backend: b, keys: keysFor(key), opts: llmhttp.Options{MaxFiles: 100_000, FileDir: dir}})
	send := func(model string, size int, options ...requestOption) reply {
		return s.do("POST", transcriptionsPath, `{"file":"`+strings.Repeat("x", size)+`","model":"`+model+`"}`, options...)
	}
	send("good", 10, withoutKey).checkError(t, 401)
	send("bad", 10).checkError(t, 404)
	send("good", 99_000).checkError(t, 429)
	send("good", 100_001).checkError(t, 413)
	send("good", 100_001, chunked).checkError(t, 413)
	assert.Zero(t, called)
	assert.Equal(t, 200, send("good", 10).StatusCode)
	assert.Equal(t, 1, called)
	assertEmptyDir(t, dir)

	// A Content-Length that is too large is refused before a byte of the body.
	head := "POST " + transcriptionsPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n"
	r := parseReply(t, "POST", s.raw(head+"Expect: 100-continue\r\n\r\n"))
	e := r.checkError(t, 413)
	assert.Equal(t, "request_too_large", e.Code)
}

// assertEmptyDir checks that no file is left in a directory.
func assertEmptyDir(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// What is charged for: tokens if the Backend reports them, or else the time, or an estimate.
func TestTranscriptions_Usage(t *testing.T) {
	tokens := &llm.Usage{PromptTokens: 14, CompletionTokens: 3, PromptTokensDetails: llm.PromptTokensDetails{AudioTokens: 10}}
	const file = 32_000 // bytes, which are at most 32 seconds if nobody tells
	for name, test := range map[string]struct {
		chunk     llmhttp.TranscriptionChunk
		units     llmhttp.Units
		estimated bool
		usage     string
	}{
		"tokens": {llmhttp.TranscriptionChunk{Text: "a", Usage: &llmhttp.TranscriptionUsage{Tokens: tokens}},
			llmhttp.Units{PromptTokens: 14, PromptAudioTokens: 10, CompletionTokens: 3}, false,
			`{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":3,"total_tokens":17}`},
		"tokens and time": {llmhttp.TranscriptionChunk{Text: "a", Duration: 1.5, Usage: &llmhttp.TranscriptionUsage{Tokens: tokens}},
			llmhttp.Units{PromptTokens: 14, PromptAudioTokens: 10, CompletionTokens: 3, AudioMillis: 1500}, false,
			`{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":3,"total_tokens":17}`},
		"another time": {llmhttp.TranscriptionChunk{Text: "a", Duration: 8.47, Usage: &llmhttp.TranscriptionUsage{Seconds: 9}},
			llmhttp.Units{AudioMillis: 9000}, false, `{"type":"duration","seconds":9}`},
		"the end of the last segment": {llmhttp.TranscriptionChunk{Text: "a", Segments: []llmhttp.TranscriptionSegment{{End: 2.5}, {Start: 2.5, End: 3.25}}},
			llmhttp.Units{AudioMillis: 3250}, false, `{"type":"duration","seconds":3.25}`},
		"nothing": {llmhttp.TranscriptionChunk{Text: "Hello, you"},
			llmhttp.Units{PromptTokens: 168, CompletionTokens: 3, AudioMillis: 32_000}, true,
			`{"type":"tokens","input_tokens":168,"input_token_details":{"text_tokens":168,"audio_tokens":0},"output_tokens":3,"total_tokens":171}`},
	} {
		t.Run(name, func(t *testing.T) {
			var priced llmhttp.UsageRecord
			s := startServer(t, config{backend: transcribingAs(&test.chunk), opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				priced = *r
				return llmhttp.Cost{Output: 7}, nil
			}}})
			r := s.do("POST", transcriptionsPath, `{"file":"`+strings.Repeat("x", file)+`","model":"m"}`)
			assert.Equal(t, `{"text":"`+test.chunk.Text+`","usage":`+test.usage+`}`, r.body)
			record := s.record()
			assert.Equal(t, test.units, record.Units)
			assert.Equal(t, test.units, priced.Units)
			assert.Equal(t, test.estimated, record.Estimated)
		})
	}
}

// A quota in money is reserved for the time that the size of the recording suggests.
func TestTranscriptions_QuotaInMoney(t *testing.T) {
	key := testKey()
	key.Limits.Quota = llmhttp.Quota{Cost: 1000}
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llmhttp.Money(r.Units.AudioMillis)}, nil
	}
	s := startServer(t, config{backend: transcribingAs(spoken()...), keys: keysFor(key), opts: llmhttp.Options{Price: price}})
	send := func(millis int) reply {
		return s.do("POST", transcriptionsPath, `{"file":"`+strings.Repeat("x", millis)+`","model":"m"}`)
	}
	send(1001).checkError(t, 429)
	assert.Equal(t, 200, send(1000).StatusCode)
}

// A character that chunks divide is sent when it is complete, and long texts in several events.
func TestTranscriptions_Deltas(t *testing.T) {
	long := strings.Repeat("äb", 6000)
	s := startServer(t, config{backend: transcribingAs(&llmhttp.TranscriptionChunk{Text: "a\xc3"}, &llmhttp.TranscriptionChunk{Text: "\xa4" + long + "\xe2\x82"})})
	r := s.do("POST", transcriptionsPath, `{"file":"x","model":"m","stream":true}`)
	var text strings.Builder
	var whole string
	for _, event := range r.events(t) {
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

// Whatever ends a request, no file is left in the directory, and nothing of the recording in memory
// that the Backend still has.
func TestTranscriptions_LeaveNoFile(t *testing.T) {
	const path = transcriptionsPath
	body := formOf(t, `{"file":"`+strings.Repeat("x", 300_000)+`","model":"m","stream":true}`)
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: multipart/form-data; boundary=" + formBoundary + fmt.Sprintf("\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(body))
	type fault struct {
		backend func(ctx context.Context, yield func(*llmhttp.TranscriptionChunk, error) bool)
		client  func(t *testing.T, s *testServer)
	}
	send := func(t *testing.T, s *testServer) { io.Copy(io.Discard, s.send(head+body)) }
	waits := func(ctx context.Context, yield func(*llmhttp.TranscriptionChunk, error) bool) {
		if yield(&llmhttp.TranscriptionChunk{Text: "a"}, nil) {
			<-ctx.Done()
		}
	}
	for name, test := range map[string]fault{
		"success":                          {func(_ context.Context, yield func(*llmhttp.TranscriptionChunk, error) bool) { yield(spoken()[0], nil) }, send},
		"the client leaves in the upload":  {nil, func(t *testing.T, s *testServer) { s.send(head + body[:200_000]).Close() }},
		"the client pauses in the upload":  {nil, func(t *testing.T, s *testServer) { io.Copy(io.Discard, s.send(head+body[:200_000])) }},
		"the client leaves later":          {waits, func(t *testing.T, s *testServer) { c := s.send(head + body); c.Read(make([]byte, 1)); c.Close() }},
		"the client does not read":         {waits, func(t *testing.T, s *testServer) { s.send(head + body); time.Sleep(time.Hour) }},
		"the Backend is silent":            {func(ctx context.Context, _ func(*llmhttp.TranscriptionChunk, error) bool) { <-ctx.Done() }, send},
		"the Backend fails":                {func(_ context.Context, yield func(*llmhttp.TranscriptionChunk, error) bool) { yield(nil, errCause) }, send},
		"the Backend panics":               {func(context.Context, func(*llmhttp.TranscriptionChunk, error) bool) { panic(errCause) }, send},
		"the Backend calls runtime.Goexit": {func(context.Context, func(*llmhttp.TranscriptionChunk, error) bool) { runtime.Goexit() }, send},
		"the file is too large": {nil, func(t *testing.T, s *testServer) {
			c := s.dial()
			go io.Copy(io.Discard, c)
			io.WriteString(c, strings.Replace(head+body, "xxx", strings.Repeat("x", 1<<20), 1)) // fails when the server closes the connection
		}},
		"the form is cut": {nil, func(t *testing.T, s *testServer) {
			io.Copy(io.Discard, s.send(strings.Replace(head, "Content-Length: ", "Content-Length: 1000\r\nX: ", 1)+body[:1000]))
		}},
		"Shutdown while the request is read": {nil, func(t *testing.T, s *testServer) {
			go io.Copy(io.Discard, s.send(head+body[:200_000]))
			synctest.Wait()
			s.handler.Shutdown(done(t))
		}},
		"Shutdown while the Backend works": {waits, func(t *testing.T, s *testServer) {
			go io.Copy(io.Discard, s.send(head+body))
			synctest.Wait()
			s.handler.Shutdown(done(t))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var kept []*llm.File
				b := transcribing(func(ctx context.Context, r *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
					kept = append(kept, r.File)
					assertEmptyDir(t, dir) // the file has no name
					return func(yield func(*llmhttp.TranscriptionChunk, error) bool) { test.backend(ctx, yield) }
				})
				s := startPipeServer(t, config{backend: b, keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{
					FileDir: dir, MaxFiles: 1 << 20, ReadTimeout: time.Minute, WriteTimeout: time.Minute, Timeout: time.Minute,
				}})
				test.client(t, s)
				s.waitForSummaries(1)
				assertEmptyDir(t, dir)
				for _, file := range kept {
					_, err := file.Content.ReadAt(make([]byte, 1), 0)
					assert.ErrorIs(t, err, fs.ErrClosed)
				}
				assert.NotContains(t, s.log.String(), strings.Repeat("x", 100))
				if !strings.HasPrefix(name, "Shutdown") {
					assert.Equal(t, 404, s.do("POST", path, `{"file":"x","model":"`+strings.Repeat("m", 600)+`"}`).StatusCode, "the place of the request is free")
				}
			})
		})
	}
}

// A directory that is missing or full is a failure of the server, of which the client gets no detail.
func TestTranscriptions_FileIsNotStored(t *testing.T) {
	dir := t.TempDir()
	assert.Panics(t, func() { newHandler(t, config{opts: llmhttp.Options{FileDir: dir + "/none"}}) })
	s := startServer(t, config{opts: llmhttp.Options{FileDir: dir}})
	require.NoError(t, os.Remove(dir))
	e := s.do("POST", transcriptionsPath, transcriptionBody).checkError(t, 500)
	assert.Equal(t, internalMessage, e.Message)
	assert.Contains(t, s.log.String(), "Options.FileDir")
	assert.Equal(t, llmhttp.ClassInternal, s.summary().ErrorClass)
}

func TestCollectTranscription(t *testing.T) {
	got, err := llmhttp.CollectTranscription(transcript(spoken()...))
	require.NoError(t, err)
	assert.Equal(t, "Hello world.", got.Text)
	assert.Equal(t, "english", got.Language)
	assert.Len(t, got.Segments, 2)
	assert.JSONEq(t, `[1,2]`, string(got.Extra["logprobs"]))
	_, err = llmhttp.CollectTranscription(transcript())
	require.Error(t, err)
}

// BenchmarkTranscription shows what the process allocates for a recording of 25 MB that the Backend
// reads to its end: with the file in memory, and in a temporary file.
func BenchmarkTranscription(b *testing.B) {
	body := []byte(formOf(b, `{"file":"RECORDING","model":"m"}`))
	body = bytes.Replace(body, []byte("RECORDING"), bytes.Repeat([]byte("0123456789abcdef"), 25_000_000/16), 1)
	backend := transcribing(func(_ context.Context, r *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
		n, err := io.Copy(io.Discard, struct{ io.Reader }{r.File.Open()})
		if err != nil || n != 25_000_000 {
			b.Errorf("read %d bytes: %v", n, err)
		}
		return transcript(&llmhttp.TranscriptionChunk{Text: "Hello.", Duration: 1})
	})
	for name, dir := range map[string]string{"memory": "", "file": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			h := llmhttp.NewHandler(backend, keysFor(testKey()), &llmhttp.Options{FileDir: dir, Logger: noLog})
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r, err := http.NewRequest(http.MethodPost, transcriptionsPath, bytes.NewReader(body))
				require.NoError(b, err)
				r.Header.Set("Authorization", "Bearer "+testSecret)
				r.Header.Set("Content-Type", "multipart/form-data; boundary="+formBoundary)
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
		content, err := os.ReadFile("internal/audiolength/testdata/" + name)
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
			b := &stubBackend{
				transcribe: func(context.Context, *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
					return transcript(&llmhttp.TranscriptionChunk{Text: "Hello"})
				},
				speak: func(context.Context, *llmhttp.SpeechRequest) llmhttp.SpeechStream {
					return speech(test.recording[:1000], test.recording[1000:])
				},
			}
			price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				return llmhttp.Cost{Output: llmhttp.Money(r.Units.AudioMillis)}, nil
			}
			s := startServer(t, config{backend: b, opts: llmhttp.Options{Price: price}})
			asked, err := json.Marshal(test.recording)
			require.NoError(t, err)
			if name == "wav" { // the others are no texts
				require.Equal(t, 200, s.do("POST", transcriptionsPath, `{"file":`+string(asked)+`,"model":"m"}`).StatusCode)
				assert.EqualValues(t, 5000, s.record().Units.AudioMillis)
			}
			s = startServer(t, config{backend: b, keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 10_000}}), opts: llmhttp.Options{Price: price}})
			served := 0
			for range 50 {
				if s.do("POST", speechPath, speechBody).StatusCode == 200 {
					served++
				}
			}
			assert.LessOrEqual(t, served, 4)
			for _, r := range s.usage.records() {
				assert.InEpsilon(t, test.millis, r.Units.AudioMillis, 0.02)
				assert.Equal(t, test.unknown, r.Estimated)
				assert.Positive(t, r.Cost.Total())
			}
		})
	}
}
