package messages

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A text delta is encoded without allocating memory.
func TestAppendChunk_Allocs(t *testing.T) {
	_, encoder, err := new(protocol).decodeChat(t.Context(), nil, []byte(`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi"}],"stream":true}`))
	require.NoError(t, err)
	b := encoder.AppendStart(make([]byte, 0, 64<<10), &llmhttp.ReplyStart{Model: "m"})
	c := llm.TextChunk("some text")
	_, err = encoder.AppendChunk(b, c)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { encoder.AppendChunk(b, c) }), "per text delta")
}
