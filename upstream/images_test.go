package upstream_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/upstream"
)

var (
	picture       = "\x89PNG\r\n\x1a\nrest of it"
	pictureBase64 = base64.StdEncoding.EncodeToString([]byte(picture))
)

// hostOf returns the host of a server, and its port.
func hostOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	return u.Host
}

func TestImageFormats(t *testing.T) {
	pictures := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			assert.NotContains(t, strings.Join(values, " "), serverKey, name)
			assert.NotContains(t, strings.Join(values, " "), clientKey, name)
		}
		switch r.URL.Path {
		case "/a.png":
			w.Write([]byte(picture))
		case "/typed":
			w.Header().Set("Content-Type", "image/avif")
			w.Write([]byte("an image of a kind that is not known"))
		case "/large":
			w.Write([]byte(picture + strings.Repeat("x", 5000)))
		case "/page":
			w.Write([]byte("<html>Sign in</html>"))
		case "/nothing":
			w.Header().Set("Content-Type", "image/png")
		case "/away":
			http.Redirect(w, r, "/a.png", http.StatusFound)
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer pictures.Close()
	host := hostOf(pictures.URL)
	local := strings.Replace(pictures.URL, "127.0.0.1", "localhost", 1) // another host than the server's
	allowed := []string{host, hostOf(local)}
	const b64, address = "b64_json", "url"
	for _, c := range []struct {
		name, format, data string
		hosts              []string
		status             int
		want               string // the member of the client's image
		log                string
	}{
		{"base64 of base64", b64, `{"b64_json":"` + pictureBase64 + `","revised_prompt":"r"}`, nil, 200, `{"b64_json":"` + pictureBase64 + `"}`, ""},
		{"address of base64", address, `{"b64_json":"` + pictureBase64 + `","revised_prompt":"r"}`, nil, 200, `{"url":"data:image/png;base64,` + pictureBase64 + `","revised_prompt":"r"}`, ""},
		{"address of an address", address, `{"url":"https://cdn.example.com/a.png?sig=1","b64_json":null}`, nil, 200, `{"url":"https://cdn.example.com/a.png?sig=1"}`, ""},
		{"base64 of an address", b64, `{"url":"` + local + `/a.png"}`, allowed, 200, `{"b64_json":"` + pictureBase64 + `"}`, ""},
		{"base64 of a data URL", b64, `{"url":"data:image/png;base64,` + pictureBase64 + `"}`, nil, 200, `{"b64_json":"` + pictureBase64 + `"}`, ""},
		{"base64 of both", b64, `{"url":"https://cdn.example.com/a.png","b64_json":"` + pictureBase64 + `"}`, nil, 200, `{"b64_json":"` + pictureBase64 + `"}`, ""},
		{"address of both", address, `{"url":"https://cdn.example.com/a.png","b64_json":"` + pictureBase64 + `"}`, nil, 200, `{"url":"https://cdn.example.com/a.png"}`, ""},
		{"address of both, the server's own", address, `{"url":"http://127.0.0.1:1/a.png","b64_json":"` + pictureBase64 + `"}`, nil, 200, `{"url":"data:image/png;base64,` + pictureBase64 + `"}`, ""},
		{"address of the server's own", address, `{"url":"` + pictures.URL + `/a.png"}`, allowed, 200, `{"url":"data:image/png;base64,` + pictureBase64 + `"}`, ""},
		{"address of the server's own, not allowed", address, `{"url":"` + pictures.URL + `/a.png"}`, nil, 502, "", "its address is the server's own, which is not in Options.ImageHosts"},
		{"address of the server's own in other words", address, `{"url":"` + strings.Replace(pictures.URL, "127.0.0.1", "127.0.0.1.", 1) + `/a.png"}`, nil, 502, "", "its address is the server's own"},
		{"a path, not allowed", address, `{"url":"/a.png"}`, nil, 502, "", "its address is the server's own"},
		{"no kind that is known", b64, `{"url":"` + local + `/typed"}`, allowed, 200, `{"b64_json":"` + base64.StdEncoding.EncodeToString([]byte("an image of a kind that is not known")) + `"}`, ""},
		{"vendor's members", b64, `{"b64_json":"` + pictureBase64 + `","seed":7}`, nil, 200, `{"b64_json":"` + pictureBase64 + `","seed":7}`, ""},
		{"not allowed", b64, `{"url":"` + local + `/a.png"}`, []string{"cdn.example.com", "127.0.0.1", "localhost"}, 502, "", "its host is not in Options.ImageHosts"},
		{"nothing allowed", b64, `{"url":"` + local + `/a.png"}`, nil, 502, "", "its host is not in Options.ImageHosts"},
		{"too large", b64, `{"url":"` + local + `/large"}`, allowed, 502, "", "larger than Options.MaxImage"},
		{"a page", b64, `{"url":"` + local + `/page"}`, allowed, 502, "", "not an image"},
		{"nothing", b64, `{"url":"` + local + `/nothing"}`, allowed, 502, "", "nothing at its address"},
		{"not there", b64, `{"url":"` + local + `/none"}`, allowed, 502, "", "fetching an image: status 404"},
		{"a redirect", b64, `{"url":"` + local + `/away"}`, allowed, 502, "", "fetching an image: status 302"},
		{"slow", b64, `{"url":"` + local + `/slow"}`, allowed, 504, "", "fetching an image: it took too long"},
		{"a file", b64, `{"url":"file:///etc/passwd"}`, allowed, 502, "", "not one of http or https"},
		{"no data URL", b64, `{"url":"data:image/png,xyz"}`, nil, 502, "", "not base64"},
		{"a bad data URL", address, `{"url":"data:image/png;base64,?"}`, nil, 502, "", "not base64"},
		{"an empty data URL", address, `{"url":"data:image/png;base64,"}`, nil, 502, "", "its data: URL is empty"},
		{"nothing in it", address, `{"revised_prompt":"r"}`, nil, 502, "", "neither data nor an address"},
		{"empty", address, `{"url":"","b64_json":""}`, nil, 502, "", "neither data nor an address"},
		{"bad base64", b64, `{"b64_json":"?"}`, nil, 502, "", "not as it should be"},
		{"no images", b64, ``, nil, 502, "", "no image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
				whole(conn, 200, "application/json", `{"created":5,"data":[`+c.data+`],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"background":"opaque"}`)
			})
			opts := &upstream.Options{ImageHosts: c.hosts, MaxImage: 1000}
			if c.status == 504 {
				opts.ImageTimeout = 100 * time.Millisecond
			}
			g := newGateway(t, s.url(), opts)
			a := g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","response_format":"`+c.format+`"}`)
			require.Equal(t, c.status, a.StatusCode, "%s", a.body)
			sum := g.used(1)
			assert.EqualValues(t, 1, sum.Requests)
			if c.status != 200 {
				g.keeps("the answer", a.body, host)
				assert.Contains(t, g.log.String(), c.log)
				assert.Zero(t, sum.Images)
				return
			}
			assert.Equal(t, `{"created":5,"data":[`+c.want+`],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"background":"opaque"}`, a.body)
			assert.EqualValues(t, 1, sum.Images)
			assert.EqualValues(t, 3, sum.PromptTokens)
			assert.EqualValues(t, 4, sum.CompletionTokens)
		})
	}
}

// One image that cannot be had fails the request, and ends the fetching of the
// others.
func TestImagesFailTogether(t *testing.T) {
	noLeaks(t)
	pictures := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		http.NotFound(w, r)
	}))
	defer pictures.Close()
	local := strings.Replace(pictures.URL, "127.0.0.1", "localhost", 1)
	s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
		whole(conn, 200, "application/json", `{"data":[{"url":"`+local+`/slow"},{"url":"`+local+`/none"},{"url":"`+local+`/slow"}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{ImageHosts: []string{hostOf(local)}})
	a := g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","n":3,"response_format":"b64_json"}`)
	assert.Equal(t, bodyFailed, a.body)
	assert.Contains(t, g.log.String(), "status 404")
}

// Whatever ends the fetching of an image, the client does not get an address
// that is not for it.
func TestImageTransportCancels(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
		whole(conn, 200, "application/json", `{"data":[{"url":"/a.png"}]}`)
	})
	transport := roundTripper(func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("closing: %w", context.Canceled) })
	g := newGateway(t, s.url(), &upstream.Options{ImageHosts: []string{hostOf(s.url())}, ImageTransport: transport})
	for _, format := range []string{"url", "b64_json"} {
		a := g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","response_format":"`+format+`"}`)
		assert.Equal(t, 502, a.StatusCode, "%s", a.body)
	}
}

// An image may be as large as the largest bound.
func TestImagesWithoutBound(t *testing.T) {
	noLeaks(t)
	pictures := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(picture)) }))
	defer pictures.Close()
	s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
		whole(conn, 200, "application/json", `{"data":[{"url":"`+pictures.URL+`/a.png"}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{ImageHosts: []string{hostOf(pictures.URL)}, MaxImage: math.MaxInt64})
	assert.Contains(t, g.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","response_format":"b64_json"}`).body, pictureBase64)
}

// A server cannot make the Backend fetch more images than a client can ask for.
func TestTooManyImages(t *testing.T) {
	noLeaks(t)
	var fetched atomic.Int64
	pictures := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		w.Write([]byte(picture))
	}))
	defer pictures.Close()
	local := strings.Replace(pictures.URL, "127.0.0.1", "localhost", 1)
	n := 10
	s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
		whole(conn, 200, "application/json", `{"data":[`+strings.Repeat(`{"url":"`+local+`/a.png"},`, n-1)+`{"url":"`+local+`/a.png"}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{ImageHosts: []string{hostOf(local)}})
	const ask = `{"model":"m","prompt":"a cat","n":10,"response_format":"b64_json"}`
	a := g.do("POST", "/v1/images/generations", ask)
	assert.Equal(t, 200, a.StatusCode)
	assert.Equal(t, 10, strings.Count(a.body, pictureBase64))
	assert.EqualValues(t, 10, fetched.Load())
	n = 1000
	assert.Equal(t, 502, g.do("POST", "/v1/images/generations", ask).StatusCode)
	assert.LessOrEqual(t, fetched.Load(), int64(20))
	assert.Contains(t, g.log.String(), "too many to be fetched")
}

// A client that leaves ends the fetching of images.
func TestClientLeavesImages(t *testing.T) {
	noLeaks(t)
	fetching, ended := make(chan struct{}), make(chan struct{})
	pictures := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(fetching)
		<-r.Context().Done()
		close(ended)
	}))
	defer pictures.Close()
	local := strings.Replace(pictures.URL, "127.0.0.1", "localhost", 1)
	s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
		whole(conn, 200, "application/json", `{"data":[{"url":"`+local+`/a.png"}]}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{ImageHosts: []string{hostOf(local)}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-fetching
		cancel()
	}()
	_, err := g.Client().Do(g.request(ctx, "POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","response_format":"b64_json"}`))
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	assert.ErrorIs(t, g.only().Err, context.Canceled)
}
