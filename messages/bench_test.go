package messages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRequest_Image serves a request with an image of 8 MB.
func BenchmarkRequest_Image(b *testing.B) {
	s := newServer(nil, nil)
	body := requestBody(`,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` +
		strings.Repeat("iVBORw0K", 1<<20) + `"}}]}]`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		require.Equal(b, 200, s.do("POST", messagesPath, body).Code)
	}
}
