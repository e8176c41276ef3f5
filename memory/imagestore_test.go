package memory_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/memory"
)

func putImage(t testing.TB, s *memory.ImageStore, data, mediaType string) string {
	t.Helper()
	address, err := s.Put(t.Context(), []byte(data), mediaType)
	require.NoError(t, err)
	return address
}

func getImage(s *memory.ImageStore, address string) *http.Response {
	return serveRequest(s, httptest.NewRequest(http.MethodGet, address, nil))
}

func serveRequest(s *memory.ImageStore, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func TestImages(t *testing.T) {
	s := memory.NewImageStore("https://example.com/images")
	for mediaType, want := range map[string]struct{ contentType, extension string }{
		"image/png":                {"image/png", ".png"},
		"image/jpeg":               {"image/jpeg", ".jpg"},
		"image/webp":               {"image/webp", ".webp"},
		"image/gif":                {"image/gif", ".gif"},
		"IMAGE/PNG; a=b":           {"image/png", ".png"},
		"image/svg+xml":            {"image/svg+xml", ".svg"},
		"image/avif":               {"image/avif", ".avif"},
		"image/x":                  {"image/x", ""},
		"text/html":                {"application/octet-stream", ""},
		"":                         {"application/octet-stream", ""},
		"image/png\r\nX-Evil: yes": {"application/octet-stream", ""},
	} {
		t.Run(mediaType, func(t *testing.T) {
			data := []byte("<b>pixels</b>")
			address, err := s.Put(t.Context(), data, mediaType)
			require.NoError(t, err)
			assert.Regexp(t, `^https://example\.com/images/[A-Z2-7]{26}`+regexp.QuoteMeta(want.extension)+"$", address)
			data[0] = 'x' // must not change the image

			resp := getImage(s, address)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "<b>pixels</b>", string(body))
			assert.Equal(t, want.contentType, resp.Header.Get("Content-Type"))
			assert.Equal(t, "13", resp.Header.Get("Content-Length"))
			assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
			assert.Equal(t, "default-src 'none'; sandbox", resp.Header.Get("Content-Security-Policy"))
			assert.Regexp(t, "^private, max-age=(3600|3599)$", resp.Header.Get("Cache-Control"))
			assert.Empty(t, resp.Header.Get("X-Evil"))
		})
	}
}

func TestImages_Methods(t *testing.T) {
	s := memory.NewImageStore("http://localhost/")
	address := putImage(t, s, "pixels", "image/png")

	head := serveRequest(s, httptest.NewRequest(http.MethodHead, address, nil))
	assert.Equal(t, 200, head.StatusCode)
	assert.Equal(t, "6", head.Header.Get("Content-Length"))
	body, err := io.ReadAll(head.Body)
	require.NoError(t, err)
	assert.Empty(t, body)

	part := httptest.NewRequest(http.MethodGet, address, nil)
	part.Header.Set("Range", "bytes=1-3")
	resp := serveRequest(s, part)
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 206, resp.StatusCode)
	assert.Equal(t, "ixe", string(body))

	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
		resp := serveRequest(s, httptest.NewRequest(method, address, nil))
		assert.Equal(t, 405, resp.StatusCode)
		assert.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
	}
}

func TestImages_NotFound(t *testing.T) {
	s := memory.NewImageStore("http://localhost/images/")
	address := putImage(t, s, "pixels", "image/png")
	u, err := url.Parse(address)
	require.NoError(t, err)
	for _, path := range []string{"/", "/images/", "/images/x", u.Path + "x", u.Path[:len(u.Path)-1], u.Path + "/"} {
		resp := getImage(s, path)
		assert.Equal(t, 404, resp.StatusCode, path)
		assert.Empty(t, resp.Header.Get("Cache-Control"))
	}
	name := u.Path[len("/images/"):]
	assert.Equal(t, 200, getImage(s, "/"+name).StatusCode, "behind http.StripPrefix")
	assert.Equal(t, 200, getImage(s, "/elsewhere/images/"+name).StatusCode)
}

func TestImages_Expire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewImageStore("http://localhost/")
		first := putImage(t, s, "first", "image/png")
		time.Sleep(30 * time.Minute)
		second := putImage(t, s, "second", "image/png")
		time.Sleep(30*time.Minute - time.Nanosecond)
		resp := getImage(s, first)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "private, max-age=0", resp.Header.Get("Cache-Control"))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 404, getImage(s, first).StatusCode)
		assert.Equal(t, 200, getImage(s, second).StatusCode)
		third := putImage(t, s, "third", "image/png")
		assert.Equal(t, 404, getImage(s, first).StatusCode)
		time.Sleep(30 * time.Minute)
		assert.Equal(t, 404, getImage(s, second).StatusCode)
		assert.Equal(t, 200, getImage(s, third).StatusCode)
	})
}

func TestImages_DropOldest(t *testing.T) {
	s := memory.NewImageStore("http://localhost/")
	s.MaxBytes = 10_000
	data := string(bytes.Repeat([]byte("x"), 3000))
	var addresses []string
	for range 5 {
		addresses = append(addresses, putImage(t, s, data, "image/png"))
	}
	for i, address := range addresses {
		want := 404
		if i >= 3 { // an image counts as more than its 3000 bytes
			want = 200
		}
		assert.Equal(t, want, getImage(s, address).StatusCode, i)
	}

	_, err := s.Put(t.Context(), make([]byte, 10_001), "image/png")
	assert.EqualError(t, err, "memory: image of 10001 bytes exceeds the limit of 10000 bytes")
	assert.Equal(t, 200, getImage(s, addresses[4]).StatusCode, "an image that is too large drops no other")
	whole := putImage(t, s, string(make([]byte, 10_000)), "image/png")
	assert.Equal(t, 200, getImage(s, whole).StatusCode)
	assert.Equal(t, 404, getImage(s, addresses[4]).StatusCode)

	large := make([]byte, 128<<20+1)
	_, err = memory.NewImageStore("http://localhost/").Put(t.Context(), large, "image/png")
	assert.Error(t, err)
	unlimited := memory.NewImageStore("http://localhost/")
	unlimited.MaxBytes = -1
	_, err = unlimited.Put(t.Context(), large, "image/png")
	assert.NoError(t, err)
}

func TestImages_ConcurrentUse(t *testing.T) {
	s := memory.NewImageStore("http://localhost/")
	s.MaxBytes = 4000
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				address, err := s.Put(t.Context(), []byte("pixels"), "image/png")
				if assert.NoError(t, err) {
					assert.Contains(t, []int{200, 404}, getImage(s, address).StatusCode)
				}
			}
		})
	}
	wg.Wait()
}
