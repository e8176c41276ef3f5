package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "1024": 1 << 10, "16MiB": 16 << 20, "3 KiB": 3 << 10, "2GiB": 2 << 30, "-1": -1} {
		var s byteSize
		require.NoError(t, s.Set(text), text)
		assert.EqualValues(t, want, s)
		var again byteSize
		require.NoError(t, again.Set(s.String()))
		assert.Equal(t, s, again)
	}
	for _, text := range []string{"", "0", "0MiB", "x", "16MB", "1.5GiB", "9999999999GiB", "MiB"} {
		assert.Error(t, new(byteSize).Set(text), text)
	}
}

// The defaults of the flags are those of the packages, but for the files of all requests: 30
// recordings of 25 MB at the same time do not fit.
func TestBounds_Flags(t *testing.T) {
	parse := func(args ...string) *bounds {
		var c config
		f := flag.NewFlagSet("", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		c.addFlags(f)
		require.NoError(t, f.Parse(args))
		return &c.bounds
	}
	b := parse()
	require.NoError(t, b.validate())
	assert.Equal(t, llmhttp.Bounds{
		MaxBody: 16 << 20, MaxReply: 64 << 20, Timeout: 5 * time.Minute, KeepAlive: 15 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 30 * time.Second,
	}, b.Bounds)
	assert.EqualValues(t, 25<<20, b.files.MaxFiles)
	assert.Less(t, b.files.MaxTotal, int64(30*25_000_000))
	dir := t.TempDir()
	b = parse("-max-body", "1MiB", "-max-reply", "-1", "-max-files", "2MiB", "-max-files-total", "3GiB", "-files-dir", dir,
		"-timeout", "1s", "-keep-alive", "-1s", "-read-timeout", "2s", "-write-timeout", "3s")
	require.NoError(t, b.validate())
	assert.Equal(t, llmhttp.Bounds{MaxBody: 1 << 20, MaxReply: -1, Timeout: time.Second, KeepAlive: -time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 3 * time.Second}, b.Bounds)
	assert.EqualValues(t, 2<<20, b.files.MaxFiles)
	assert.EqualValues(t, 3<<30, b.files.MaxTotal)
	assert.Equal(t, dir, b.files.Dir)
	assert.ErrorContains(t, parse("-files-dir", dir+"/none").validate(), "-files-dir: ")
	assert.EqualError(t, parse("-timeout", "0s").validate(), "-timeout must not be 0")
}

// recording returns a form with a file of size bytes.
func recording(t *testing.T, size int) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.WriteField("model", "m"))
	file, err := w.CreateFormFile("file", "a.wav")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, size))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.Bytes()
}

// The files of all requests in progress together are bounded, as the flags say. What does not fit is refused until
// others have ended.
func TestFiles_AreBoundedTogether(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"text": "ok"}`)
	}))
	t.Cleanup(upstream.Close)
	dsn := t.TempDir() + "/llmhttp.db"
	p := start(t, newCommand([]string{"LLMHTTP_UPSTREAM=models=" + upstream.URL + "/v1"}, "-dsn", dsn, "-max-files", "1MiB", "-max-files-total", "1MiB", "-max-body", "4KiB"))
	secret := createKey(t, dsn).Secret
	transcribe := func(size int) (status int) {
		contentType, body := recording(t, size)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/audio/transcriptions", bytes.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", contentType)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	const size = 700_000
	require.Equal(t, 200, transcribe(size))
	assert.Equal(t, 413, transcribe(2_000_000))

	// A client that sends the file and not the end of the form holds its place.
	contentType, body := recording(t, size)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		secret, contentType, len(body), body[:len(body)-10])
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) { require.Equal(c, 503, transcribe(size)) })
	require.NoError(t, conn.Close())
	eventually(t, func(c *assert.CollectT) { require.Equal(c, 200, transcribe(size)) })

	status, reply := client{p.url, secret}.send(t, "POST", chatPath, chatBody(false, 2000))
	assert.Equal(t, 413, status, reply)
}
