package responsesws_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsesws"
)

// BenchmarkResponse compares a streamed response over HTTP with one over a WebSocket, each on a connection that
// stays open, with clients that only look for the end of the response.
func BenchmarkResponse(b *testing.B) {
	for _, chunks := range []int{1, 100} {
		backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for range chunks {
					if !yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Content: "word "}}}}, nil) {
						return
					}
				}
			}
		})
		api := llmhttp.NewHandler(backend, llmhttp.AllowAll("bench"), &llmhttp.Options{
			Protocols: []llmhttp.Protocol{responses.New(nil)}, Logger: slog.New(slog.DiscardHandler),
		})
		server := httptest.NewServer(responsesws.New(api, nil))
		b.Cleanup(server.Close)
		end := []byte(`{"type":"response.completed"`)
		const request = `"model":"m","store":false,"input":"How are you?"}`

		b.Run(fmt.Sprintf("HTTP/chunks=%d", chunks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, err := http.Post(server.URL+"/v1/responses", "application/json", strings.NewReader(`{"stream":true,`+request))
				require.NoError(b, err)
				found := false
				for lines := bufio.NewReader(resp.Body); ; {
					line, err := lines.ReadSlice('\n')
					found = found || bytes.Contains(line, end)
					if err == io.EOF {
						break
					}
				}
				require.True(b, found)
				resp.Body.Close()
			}
		})
		b.Run(fmt.Sprintf("WebSocket/chunks=%d", chunks), func(b *testing.B) {
			ctx := context.Background()
			ws, _, err := websocket.Dial(ctx, server.URL+"/v1/responses", nil)
			require.NoError(b, err)
			defer ws.CloseNow()
			ws.SetReadLimit(-1)
			message, buf := []byte(`{"type":"response.create",`+request), make([]byte, 64<<10)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n > 0 && n%9000 == 0 { // more responses than a connection may have
					ws.CloseNow()
					ws, _, err = websocket.Dial(ctx, server.URL+"/v1/responses", nil)
					require.NoError(b, err)
					ws.SetReadLimit(-1)
				}
				require.NoError(b, ws.Write(ctx, websocket.MessageText, message))
				for found := false; !found; {
					_, r, err := ws.Reader(ctx)
					require.NoError(b, err)
					n, err := io.ReadFull(r, buf)
					require.ErrorIs(b, err, io.ErrUnexpectedEOF)
					found = bytes.HasPrefix(buf[:n], end)
				}
			}
		})
	}
}
