package audio_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A speaker says nothing for a tenth of a second in place of each word.
type speaker struct{ llmhttp.Backend }

func (speaker) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		if req.ResponseFormat != "pcm" {
			yield(nil, llm.Errorf(400, "unsupported_value", "This model has only the response_format pcm."))
			return
		}
		silence := make([]byte, 2*24_000/10) // 16 bits, 24 kHz
		for range strings.Fields(req.Input) {
			if !yield(&audio.SpeechChunk{Audio: silence}, nil) {
				return
			}
		}
	}
}

func Example() {
	h := llmhttp.NewHandler(speaker{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: audio.Routes(nil)})
	r := httptest.NewRequest("POST", "/v1/audio/speech", strings.NewReader(
		`{"model": "silence", "input": "Hello there!", "voice": "alloy", "response_format": "pcm"}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Body.Len(), "bytes")
	// Output: 200 audio/pcm 9600 bytes
}
