package upstream_test

import (
	"net/http/httptest"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/stretchr/testify/require"
)

// What every Backend promises, over a Handler with another Backend behind it.
func TestBackend(t *testing.T) {
	srv := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.Keys("sk-upstream"), nil))
	defer srv.Close()
	b, err := upstream.New(srv.URL+"/v1", &upstream.Options{Key: "sk-upstream"})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{
		ChatModel: memory.ModelChat, ImageModel: memory.ModelImageSmall, EmbeddingModel: memory.ModelEmbed,
	})
}
