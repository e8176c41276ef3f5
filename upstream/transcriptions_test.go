package upstream_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

// transcribe sends a request for a transcription to a server that serves it by handle.
func transcribe(t *testing.T, req *audio.TranscriptionRequest, handle http.HandlerFunc) (*audio.TranscriptionChunk, error) {
	t.Helper()
	srv := httptest.NewServer(handle)
	defer srv.Close()
	b := newBackend(t, srv.URL+"/v1", &upstream.Options{Models: map[string]string{"m": "whisper"}})
	req.Model = "m"
	if req.File == nil {
		req.File = &llm.File{Name: "blob", ContentType: "audio/webm;codecs=opus", Size: 9, Content: bytes.NewReader([]byte("recording"))}
	}
	return audio.CollectTranscription(b.Transcribe(t.Context(), req))
}

// What the server gets. Of texts and subtitles it is asked for the JSON from which they are made.
func TestTranscribe_Request(t *testing.T) {
	for format, want := range map[string]string{"json": "json", "text": "json", "srt": "verbose_json", "vtt": "verbose_json", "verbose_json": "verbose_json", "diarized_json": "diarized_json"} {
		req := &audio.TranscriptionRequest{
			ResponseFormat: format, Language: "de", Prompt: "p", Temperature: new(0.5), TimestampGranularities: []string{"word"},
			Include: []string{"logprobs"}, Stream: format == "json", Extra: map[string][]string{"keywords[]": {"a", "b"}}, Translate: format == "text",
		}
		_, err := transcribe(t, req, func(w http.ResponseWriter, r *http.Request) {
			if !assert.NoError(t, r.ParseMultipartForm(1<<20)) {
				return
			}
			assert.Positive(t, r.ContentLength)
			assert.Equal(t, map[bool]string{false: "/v1/audio/transcriptions", true: "/v1/audio/translations"}[format == "text"], r.URL.Path)
			wanted := map[string][]string{"model": {"whisper"}, "language": {"de"}, "prompt": {"p"}, "temperature": {"0.5"}, "response_format": {want}, "include[]": {"logprobs"}, "keywords[]": {"a", "b"}}
			if format == "verbose_json" {
				wanted["timestamp_granularities[]"] = []string{"word"}
			}
			if format == "json" {
				wanted["stream"] = []string{"true"}
			}
			assert.Equal(t, wanted, map[string][]string(r.MultipartForm.Value))
			file := r.MultipartForm.File["file"][0]
			assert.Equal(t, "blob.webm", file.Filename)
			f, err := file.Open()
			assert.NoError(t, err)
			content, _ := io.ReadAll(f)
			assert.Equal(t, "recording", string(content))
			io.WriteString(w, `{"text":"Hello"}`)
		})
		require.NoError(t, err, format)
	}
}

func TestTranscribe_Replies(t *testing.T) {
	const openAI = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hel\",\"logprobs\":[1]}\n\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\"lo\"}\n\n"
	for name, test := range map[string]struct {
		reply  string
		text   string // empty if the status is that of an error
		status int
		units  [2]float64 // tokens and seconds of the usage
	}{
		"tokens":             {`{"text":"Hello","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":10},"output_tokens":3,"total_tokens":17}}`, "Hello", 0, [2]float64{17, 0}},
		"time":               {`{"text":"Hello","usage":{"type":"duration","seconds":9}}`, "Hello", 0, [2]float64{0, 9}},
		"an old duration":    {`{"task":"transcribe","duration":"8.47","text":"Hello"}`, "Hello", 0, [2]float64{}},
		"events":             {openAI + "data: {\"type\":\"transcript.text.done\",\"text\":\"Hello\",\"usage\":{\"type\":\"tokens\",\"input_tokens\":1,\"output_tokens\":1,\"total_tokens\":2}}\n\n", "Hello", 0, [2]float64{2, 0}},
		"only the end":       {"data: {\"type\":\"transcript.text.done\",\"text\":\"Hello\"}\n\n", "Hello", 0, [2]float64{}},
		"segments":           {openAI + "data: {\"type\":\"transcript.text.segment\",\"id\":\"seg_1\",\"start\":0,\"end\":1,\"text\":\"Hello\",\"speaker\":\"A\"}\n\ndata: {\"type\":\"x\"}\n\ndata: [DONE]\n\n", "Hello", 0, [2]float64{}},
		"vLLM":               {"data: {\"object\":\"transcription.chunk\",\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: [DONE]\n\n", "Hello", 0, [2]float64{}},
		"a stream that ends": {openAI, "", 502, [2]float64{}},
		"an error event":     {openAI + "data: {\"error\":{\"message\":\"No.\",\"type\":\"invalid_request_error\",\"param\":\"file\",\"code\":\"x\"}}\n\n", "", 400, [2]float64{}},
		"no text":            {`{"status":"ok"}`, "", 502, [2]float64{}},
		"HTML":               {`<html>`, "", 502, [2]float64{}},
		"nothing":            {``, "", 502, [2]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := transcribe(t, &audio.TranscriptionRequest{ResponseFormat: "json"}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, test.reply) })
			if test.status != 0 {
				e, _ := errors.AsType[*llm.Error](err)
				require.NotNil(t, e, "%v", err)
				assert.Equal(t, test.status, e.Status)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.text, got.Text)
			if u := got.Usage; u != nil {
				tokens := 0
				if u.Tokens != nil {
					tokens = u.Tokens.TotalTokens
				}
				assert.Equal(t, test.units, [2]float64{float64(tokens), u.Seconds})
			} else {
				assert.Zero(t, test.units)
			}
		})
	}
}

// An error of the server names the parameter and not the server's name of the model.
func TestTranscribe_Error(t *testing.T) {
	_, err := transcribe(t, &audio.TranscriptionRequest{ResponseFormat: "json"}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":{"message":"whisper cannot read it","type":"invalid_request_error","param":"file","code":"invalid_value"}}`)
	})
	e, _ := errors.AsType[*llm.Error](err)
	require.NotNil(t, e)
	assert.Equal(t, "file", e.Param)
	assert.Equal(t, "m cannot read it", e.Message)
	assert.False(t, strings.Contains(e.Error(), "recording"))
}
