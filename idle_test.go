package llmhttp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// Keep-alives are comments of a single line: openai/openai-python#2722,
// openai-go#556, coder/coder#28185, mckinsey/agents-at-scale-ark#2567.
func TestKeepAlive(t *testing.T) {
	tests := []struct {
		name          string
		keepAlive     time.Duration
		before, after time.Duration // the silence before and after the only chunk
		want          string        // "#" for a comment, "." for an event
	}{
		{"silence is too short", 0, 14 * time.Second, 14 * time.Second, "...."},
		{"before the first chunk", 0, 46 * time.Second, 0, "#\n#\n#\n...."},
		{"between chunks", 0, 0, 31 * time.Second, "..#\n#\n.."},
		{"before and between chunks", time.Second, 2500 * time.Millisecond, 1500 * time.Millisecond, "#\n#\n..#\n.."},
		{"negative means never", -1, time.Minute, time.Minute, "...."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts: llmhttp.Options{KeepAlive: tt.keepAlive},
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						time.Sleep(tt.before)
						if yield(llmhttp.TextChunk("hi"), nil) {
							time.Sleep(tt.after)
						}
					}),
				})
				r := s.chat(streamBody)
				r.checkText(t, "hi")
				r.checkHeaders(t)
				assert.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
				got := strings.ReplaceAll(r.body, ": keep-alive\n", "#\n")
				for _, event := range r.events(t) {
					got = strings.Replace(got, "data: "+event+"\n\n", ".", 1)
				}
				assert.Equal(t, tt.want, got)
				s.shutdown()
			})
		})
	}
}

func TestKeepAlive_NotInAWholeReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			time.Sleep(4 * time.Minute)
			yield(llmhttp.TextChunk("hi"), nil)
		})})
		r := s.chat(chatBody)
		assert.Equal(t, 200, r.StatusCode)
		assert.True(t, strings.HasPrefix(r.body, `{"id":"`), r.body)
	})
}

// A keep-alive sends the status, so that a later error can only be an event.
func TestKeepAlive_ErrorAfterItIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			opts: llmhttp.Options{KeepAlive: time.Second},
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				time.Sleep(1500 * time.Millisecond)
				yield(nil, llmhttp.ModelNotFound("demo-chat"))
			}),
		})
		r := s.chat(streamBody)
		r.checkCut(t)
		want := errorBody("The model `demo-chat` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found")
		assert.Equal(t, ": keep-alive\ndata: "+want+"\n\n", r.body)
	})
}

func TestKeepAlive_EndsWithTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(ctx context.Context, _ yieldFunc) { <-ctx.Done() })})
		start := time.Now()
		r := s.chat(streamBody)
		assert.Equal(t, timeoutMessage, r.checkCut(t).Message)
		assert.Len(t, r.events(t), 1)
		assert.Equal(t, 5*time.Minute, time.Since(start).Round(time.Second))
		assert.Equal(t, 19, strings.Count(r.body, ": keep-alive\n"))
	})
}
