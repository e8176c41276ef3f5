package upstream

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

func TestOptions_ZeroAndNegative(t *testing.T) {
	negative := Options{
		ConnectTimeout: -1, FirstByteTimeout: -1, IdleTimeout: -1, ReadOn: -1, MaxReply: -1, MaxReplyMemory: -1, MaxEvent: -1,
		Images: ImageOptions{Timeout: -1, MaxSize: -1},
	}
	var zero Options
	zero.setDefaults()
	negative.setDefaults()
	for name, test := range map[string]struct{ zero, wantZero, negative, wantNegative int64 }{
		"FirstByteTimeout": {int64(zero.FirstByteTimeout), int64(5 * time.Minute), int64(negative.FirstByteTimeout), -1},
		"IdleTimeout":      {int64(zero.IdleTimeout), int64(time.Minute), int64(negative.IdleTimeout), -1},
		"ReadOn":           {int64(zero.ReadOn), int64(5 * time.Second), int64(negative.ReadOn), -1},
		"Images.Timeout":   {int64(zero.Images.Timeout), int64(30 * time.Second), int64(negative.Images.Timeout), -1},
		"MaxReply":         {zero.MaxReply, 64 << 20, negative.MaxReply, math.MaxInt64},
		"MaxReplyMemory":   {zero.MaxReplyMemory, 64 << 20, negative.MaxReplyMemory, math.MaxInt64},
		"MaxEvent":         {zero.MaxEvent, 16 << 20, negative.MaxEvent, math.MaxInt},
		"Images.MaxSize":   {zero.Images.MaxSize, 32 << 20, negative.Images.MaxSize, math.MaxInt64},
	} {
		assert.Equal(t, test.wantZero, test.zero, name)
		assert.Equal(t, test.wantNegative, test.negative, name)
	}
}

func TestNewTransport_ZeroAndNegative(t *testing.T) {
	for name, test := range map[string]struct {
		opts      *TransportOptions
		handshake time.Duration
		ping      time.Duration // zero if connections are not pinged
	}{
		"nil":      {nil, 10 * time.Second, 30 * time.Second},
		"zero":     {&TransportOptions{}, 10 * time.Second, 30 * time.Second},
		"negative": {&TransportOptions{ConnectTimeout: -1, IdleTimeout: -1}, 0, 0},
		"set":      {&TransportOptions{ConnectTimeout: time.Second, IdleTimeout: time.Hour}, time.Second, time.Hour / 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewTransport(test.opts)
			assert.Equal(t, test.handshake, got.TLSHandshakeTimeout)
			ping := got.HTTP2
			if ping == nil {
				ping = &http.HTTP2Config{}
			}
			assert.Equal(t, test.ping, ping.PingTimeout)
			assert.Equal(t, test.ping, ping.SendPingTimeout)
		})
	}
}

// Without their limits, replies and events of any size are read.
func TestOptions_NoLimits(t *testing.T) {
	const numbers = 1 << 15
	vector := `{"data":[{"index":0,"embedding":[` + strings.Repeat("0,", numbers-1) + `0]}]}`
	text := strings.Repeat("x", 1<<16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/embeddings":
			io.WriteString(w, vector)
		case "/chat/completions":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"`+text+`"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		}
	}))
	defer server.Close()
	for name, test := range map[string]struct {
		opts   Options
		failed bool
	}{
		"none":  {Options{MaxReply: -1, MaxReplyMemory: -1, MaxEvent: -1}, false},
		"small": {Options{MaxReply: 1 << 10, MaxReplyMemory: 1 << 10, MaxEvent: 1 << 10}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := New(server.URL, &test.opts)
			require.NoError(t, err)
			defer b.CloseIdleConnections()
			_, err = b.Embed(t.Context(), &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{"x"}}})
			assert.Equal(t, test.failed, err != nil, err)
			_, err = join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true}))
			assert.Equal(t, test.failed, err != nil, err)
		})
	}
}
