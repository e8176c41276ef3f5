package anthropic_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// benchStream is a stream of a hundred deltas, as that of the benchmark of package upstream.
var benchStream = events(messageStart, textStart) +
	strings.Repeat("event: content_block_delta\ndata: "+delta("0", `{"type":"text_delta","text":" dark"}`)+"\n\n", 100) +
	events(blockStop, messageEnd, messageStop)

// benchBackend returns a Backend whose server replies without a network.
func benchBackend(t testing.TB, reply string) *anthropic.Backend {
	return newBackend(t, "http://localhost", withTransport(func(r *http.Request) (*http.Response, error) {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(reply)), Body: io.NopCloser(strings.NewReader(reply))}, nil
	}))
}

func benchChat(t testing.TB, b *anthropic.Backend, req *llm.ChatRequest) {
	for _, err := range b.Chat(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkChat measures chats without a network, as the benchmark of package upstream does.
func BenchmarkChat(b *testing.B) {
	for name, c := range map[string]struct {
		reply  string
		size   int // of the request, in bytes
		stream bool
	}{"whole": {okMessage, 512, false}, "1MB": {okMessage, 1 << 20, false}, "stream": {benchStream, 512, true}} {
		b.Run(name, func(b *testing.B) {
			backend, req := benchBackend(b, c.reply), ask(c.stream)
			req.Messages[0].Content = llm.TextContent(strings.Repeat("words ", c.size/6))
			b.ReportAllocs()
			for b.Loop() {
				benchChat(b, backend, req)
			}
		})
	}
}

// A delta of a text costs few allocations, those of its chunk included.
func TestAllocs_TextDelta(t *testing.T) {
	measure := func(stream string) float64 {
		backend, req := benchBackend(t, stream), ask(true)
		return testing.AllocsPerRun(20, func() { benchChat(t, backend, req) })
	}
	more := measure(benchStream) - measure(textStream())
	t.Logf("%.1f allocations per delta", more/99)
	assert.LessOrEqual(t, more/99, 6.0)
}
