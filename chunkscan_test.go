package llmhttp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzScanChunk checks that the scanner decodes a chunk as the library does, or
// leaves it to the library.
func FuzzScanChunk(f *testing.F) {
	const head = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo",`
	for _, s := range []string{
		head + `"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`,
		head + `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}`,
		head + `"service_tier":"default","system_fingerprint":null,"choices":[{"index":1,"delta":{"reasoning_content":"東"},"finish_reason":null,"stop_reason":null}],"obfuscation":"x"}`,
		head + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		head + `"choices":[]}`,
		head + `"choices":[{"index":0,"delta":{"content":"a\nb"}}]}`,
		head + `"choices":[{"index":0,"delta":{"content":null}}]}`,
		head + `"choices":[{"index":0,"index":1,"delta":{}}]}`,
		head + `"id":"again"}`,
		head + `"error":"boom"}`,
		`{"object":"error","message":"boom"}`, `{"object":"chat.completion.chunk"}`, `{"created":01}`, `{"created":-0}`,
		`{"created":1e3}`, `{"":"\xff"}`, `{"model":"\xff"}`, `{"model":"a"} `, ` {"model":"a"}`, `{}`, `{"a":}`, `{"a":null,}`, `null`, ``, `{"id":"a"}x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var scanned, decoded ChatChunk
		if !scanChunk(data, &scanned) {
			return
		}
		require.NoError(t, unmarshalReply(data, &decoded), "%q", data)
		require.Equal(t, decoded, scanned, "%q", data)
	})
}

func TestScanChunk_CommonForm(t *testing.T) {
	var c ChatChunk
	require.True(t, scanChunk([]byte(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`), &c))
	require.Equal(t, ChatChunk{ID: "c", Created: 1, Model: "m", Choices: []ChunkChoice{{Delta: Delta{Content: "Hi"}}}}, c)
}

func BenchmarkScanChunk(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`)
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			var c ChatChunk
			if !scanChunk(data, &c) {
				b.Fatal("the chunk is not of the common form")
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		for b.Loop() {
			var c ChatChunk
			if err := unmarshalReply(data, &c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
