package llmhttp_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// assertEmptyDir checks that no file is left in a directory.
func assertEmptyDir(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The Backend learns of a recording only when the key, its model and its limits allow it. A recording
// that is too large gets a 413 before it was read, or as soon as it is known to be.
func TestUploads_AreCheckedFirst(t *testing.T) {
	key := testKey()
	key.Models, key.Limits = []string{"good"}, llmhttp.Limits{Tokens: llmhttp.Rate{N: 200, Per: time.Hour}}
	called := 0
	b := &stubBackend{call: func(context.Context) error { called++; return nil }}
	dir := t.TempDir()
	s := startServer(t, config{backend: b, keys: keysFor(key), opts: llmhttp.Options{
		Routes: audio.Routes(&audio.Options{Files: &form.Store{MaxFiles: 100_000, Dir: dir}}),
	}})
	send := func(model string, size int, options ...requestOption) reply {
		return s.do("POST", transcriptionsPath, `{"file":"`+strings.Repeat("x", size)+`","model":"`+model+`"}`, options...)
	}
	send("good", 10, withoutKey).checkError(t, 401)
	send("bad", 10).checkError(t, 404)
	send("good", 99_000).checkError(t, 429)
	send("good", 100_001).checkError(t, 413)
	send("good", 100_001, chunked).checkError(t, 413)
	assert.Zero(t, called)
	assert.Equal(t, 200, send("good", 10).StatusCode)
	assert.Equal(t, 1, called)
	assertEmptyDir(t, dir)

	// A Content-Length that is too large is refused before a byte of the body.
	head := "POST " + transcriptionsPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n"
	r := parseReply(t, "POST", s.raw(head+"Expect: 100-continue\r\n\r\n"))
	e := r.checkError(t, 413)
	assert.Equal(t, "request_too_large", e.Code)
}

// Whatever ends a request, no file is left in the directory, and nothing of the recording in memory
// that the Backend still has.
func TestUploads_LeaveNoFile(t *testing.T) {
	const path = transcriptionsPath
	body := endpointtest.Form(t, `{"file":"`+strings.Repeat("x", 300_000)+`","model":"m","stream":true}`)
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: " + endpointtest.FormType + fmt.Sprintf("\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(body))
	type fault struct {
		backend func(ctx context.Context, yield func(*audio.TranscriptionChunk, error) bool)
		client  func(t *testing.T, s *testServer)
	}
	send := func(t *testing.T, s *testServer) { io.Copy(io.Discard, s.send(head+body)) }
	waits := func(ctx context.Context, yield func(*audio.TranscriptionChunk, error) bool) {
		if yield(&audio.TranscriptionChunk{Text: "a"}, nil) {
			<-ctx.Done()
		}
	}
	for name, test := range map[string]fault{
		"success": {func(_ context.Context, yield func(*audio.TranscriptionChunk, error) bool) {
			yield(&audio.TranscriptionChunk{Text: "a"}, nil)
		}, send},
		"the client leaves in the upload":  {nil, func(t *testing.T, s *testServer) { s.send(head + body[:200_000]).Close() }},
		"the client pauses in the upload":  {nil, func(t *testing.T, s *testServer) { io.Copy(io.Discard, s.send(head+body[:200_000])) }},
		"the client leaves later":          {waits, func(t *testing.T, s *testServer) { c := s.send(head + body); c.Read(make([]byte, 1)); c.Close() }},
		"the client does not read":         {waits, func(t *testing.T, s *testServer) { s.send(head + body); time.Sleep(time.Hour) }},
		"the Backend is silent":            {func(ctx context.Context, _ func(*audio.TranscriptionChunk, error) bool) { <-ctx.Done() }, send},
		"the Backend fails":                {func(_ context.Context, yield func(*audio.TranscriptionChunk, error) bool) { yield(nil, errCause) }, send},
		"the Backend panics":               {func(context.Context, func(*audio.TranscriptionChunk, error) bool) { panic(errCause) }, send},
		"the Backend calls runtime.Goexit": {func(context.Context, func(*audio.TranscriptionChunk, error) bool) { runtime.Goexit() }, send},
		"the file is too large": {nil, func(t *testing.T, s *testServer) {
			c := s.dial()
			go io.Copy(io.Discard, c)
			io.WriteString(c, strings.Replace(head+body, "xxx", strings.Repeat("x", 1<<20), 1)) // fails when the server closes the connection
		}},
		"the form is cut": {nil, func(t *testing.T, s *testServer) {
			io.Copy(io.Discard, s.send(strings.Replace(head, "Content-Length: ", "Content-Length: 1000\r\nX: ", 1)+body[:1000]))
		}},
		"Shutdown while the request is read": {nil, func(t *testing.T, s *testServer) {
			go io.Copy(io.Discard, s.send(head+body[:200_000]))
			synctest.Wait()
			s.handler.Shutdown(done(t))
		}},
		"Shutdown while the Backend works": {waits, func(t *testing.T, s *testServer) {
			go io.Copy(io.Discard, s.send(head+body))
			synctest.Wait()
			s.handler.Shutdown(done(t))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var kept []*llm.File
				b := &stubBackend{transcribe: func(ctx context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
					kept = append(kept, r.File)
					assertEmptyDir(t, dir) // the file has no name
					return func(yield func(*audio.TranscriptionChunk, error) bool) { test.backend(ctx, yield) }
				}}
				s := startPipeServer(t, config{backend: b, keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{
					Routes: audio.Routes(&audio.Options{Files: &form.Store{Dir: dir, MaxFiles: 1 << 20}}), Bounds: llmhttp.Bounds{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Timeout: time.Minute},
				}})
				test.client(t, s)
				s.waitForSummaries(1)
				assertEmptyDir(t, dir)
				for _, file := range kept {
					_, err := file.Content.ReadAt(make([]byte, 1), 0)
					assert.ErrorIs(t, err, fs.ErrClosed)
				}
				assert.NotContains(t, s.log.String(), strings.Repeat("x", 100))
				if !strings.HasPrefix(name, "Shutdown") {
					assert.Equal(t, 404, s.do("POST", path, `{"file":"x","model":"`+strings.Repeat("m", 600)+`"}`).StatusCode, "the place of the request is free")
				}
			})
		})
	}
}
