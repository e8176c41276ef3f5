package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newEncoder returns an encoder whose decoder needs a window of the given size.
func newEncoder(t *testing.T, window int) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(window))
	require.NoError(t, err)
	return e
}

func TestDecode(t *testing.T) {
	small, large := newEncoder(t, 1<<20), newEncoder(t, 16<<20)
	text := strings.Repeat("Hello! ", 4<<20)
	for name, tt := range map[string]struct {
		body []byte
		ok   bool
	}{
		"valid":           {small.EncodeAll([]byte(text), nil), true},
		"cut":             {small.EncodeAll([]byte(text), nil)[:100], false},
		"no zstd":         {[]byte("Hello!"), false},
		"too much memory": {large.EncodeAll([]byte(text), nil), false},
	} {
		r, err := decode("zstd", strings.NewReader(string(tt.body)))
		require.NoError(t, err, name)
		content, err := io.ReadAll(r)
		assert.Equal(t, tt.ok, err == nil, "%s: %v", name, err)
		assert.Equal(t, tt.ok, string(content) == text, name)
		require.NoError(t, r.Close())
	}
	_, err := decode("br", strings.NewReader(""))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// Codex compresses its requests.
func TestGateway_Zstd(t *testing.T) {
	t.Parallel()
	s := newSetup(t, 0)
	ask := func(body string) (int, string) {
		return s.call(t, "sk-gateway-secret", "POST", "/v1/responses", body, "Content-Encoding", "zstd")
	}
	e := newEncoder(t, 1<<20)
	status, reply := ask(string(e.EncodeAll([]byte(`{"model":"demo-chat","input":"Hi"}`), nil)))
	assert.Equal(t, 200, status, reply)
	assert.Contains(t, reply, `"status":"completed"`)
	status, reply = ask("{}")
	assert.Equal(t, 400, status)
	assert.Contains(t, reply, "not valid zstd")
	status, _ = ask(string(e.EncodeAll(make([]byte, 64<<20), nil)))
	assert.Equal(t, 413, status)
}
