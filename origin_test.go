package llmhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// requestTo returns a chat request to a host. header has names and values in turn.
func requestTo(host string, header ...string) *http.Request {
	r := httptest.NewRequest("POST", chatPath, strings.NewReader(chatBody))
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// respond returns the status, the code and the message of the reply to r.
func respond(t *testing.T, h http.Handler, r *http.Request) (status int, code, message string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		return w.Code, "", ""
	}
	e := reply{Response: w.Result(), body: w.Body.String()}.checkError(t, w.Code)
	return w.Code, e.Code, e.Message
}

// arrivingAt returns r as net/http's server passes it on if it has arrived at the address ip.
func arrivingAt(ip string, r *http.Request) *http.Request {
	addr := &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080}
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
}

// What a web page can have a browser send does not reach the Backend of a server that needs
// no key. A program is served by whatever name it calls the server, except on loopback.
func TestOrigin_WithoutKeys(t *testing.T) {
	hostname, err := os.Hostname()
	require.NoError(t, err)
	for _, tt := range []struct {
		name           string
		host           string
		header         []string
		loopback, want int // the status on loopback, and elsewhere
	}{
		{"a program", "127.0.0.1:8080", nil, 200, 200},
		{"a program, localhost", "localhost:8080", nil, 200, 200},
		{"a program, below localhost", "llm.localhost", nil, 200, 200},
		{"a program, IPv6", "[::1]:8080", nil, 200, 200},
		{"a program, another address", "192.0.2.7:8080", nil, 200, 200},
		{"a program, name of the machine", strings.ToUpper(hostname) + ":8080", nil, 200, 200},
		{"a program, mDNS name", hostname + ".local:8080", nil, 200, 200},
		{"a program, name of a service", "llm:8080", nil, 403, 200},
		{"a program, name in DNS", "llm.acme.test", nil, 403, 200},
		{"a program with a key", "llm:8080", []string{"Authorization", "Bearer sk-any"}, 403, 200},
		{"fetch of Node.js", "llm:8080", []string{"Sec-Fetch-Mode", "cors", "Accept-Language", "*"}, 403, 200},
		{"no Host", "", nil, 200, 200},

		{"page of the server", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 200, 200},
		{"page of the server, old browser", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080"}, 200, 200},
		{"page of the machine", hostname + ":8080", []string{"Origin", "http://" + hostname + ":8080"}, 200, 200},
		{"typed address", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "none"}, 200, 200},

		{"page of another site", "127.0.0.1:8080", []string{"Origin", "https://evil.test"}, 403, 403},
		{"page of another site with a key", "127.0.0.1:8080", []string{"Origin", "https://evil.test", "Authorization", "Bearer sk-any"}, 403, 403},
		{"page of another port", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:9090", "Sec-Fetch-Site", "same-site"}, 403, 403},
		{"page of another port, old browser", "192.0.2.7:8080", []string{"Origin", "http://192.0.2.7:9090"}, 403, 403},
		{"opaque origin", "127.0.0.1:8080", []string{"Origin", "null"}, 403, 403},
		{"name like loopback", "127.0.0.1:8080", []string{"Origin", "http://localhost.evil.test"}, 403, 403},
		{"user like loopback", "127.0.0.1:8080", []string{"Origin", "http://localhost@evil.test"}, 403, 403},
		{"cross-site without Origin", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403, 403},

		{"rebound name", "evil.test:8080", []string{"Origin", "http://evil.test:8080"}, 403, 403},
		{"rebound name, marked", "evil.test:8080", []string{"Sec-Fetch-Site", "same-origin"}, 403, 403},
		{"rebound name with a cookie", "evil.test:8080", []string{"Cookie", "a=b"}, 403, 403},
		{"rebound name with a key", "evil.test:8080", []string{"Origin", "http://evil.test:8080", "Authorization", "Bearer sk-any"}, 403, 403},
		{"rebound name with a dot", "evil.test.:8080", []string{"Origin", "http://evil.test.:8080"}, 403, 403},
		{"rebound name like an address", "127.0.0.1.evil.test", []string{"Origin", "http://127.0.0.1.evil.test"}, 403, 403},
		{"rebound name that ends in a digit", "evil.test1", []string{"Origin", "http://evil.test1"}, 403, 403},
		{"rebound name like localhost", "notlocalhost", []string{"Origin", "http://notlocalhost"}, 403, 403},
		{"malformed host", "[", []string{"Cookie", "a=b"}, 403, 403},
	} {
		for name, keys := range map[string]llmhttp.KeyStore{
			"AllowAll": llmhttp.AllowAll("a"),
			"wrapped":  llmhttp.KeyStoreFunc(llmhttp.AllowAll("a").Lookup),
			"any key":  llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return new(llmhttp.Key), nil }),
		} {
			for ip, want := range map[string]int{"127.0.0.1": tt.loopback, "::1": tt.loopback, "192.0.2.7": tt.want} {
				t.Run(tt.name+"/"+name+"/"+ip, func(t *testing.T) {
					calls := 0
					h := llmhttp.NewHandler(countCalls(&calls), keys, nil)
					status, _, message := respond(t, h, arrivingAt(ip, requestTo(tt.host, tt.header...)))
					assert.Equal(t, want, status, message)
					assert.Equal(t, want == 200, calls == 1, "the Backend was called")

					h = llmhttp.NewHandler(new(stubBackend), keys, &llmhttp.Options{Accept: llmhttp.AcceptOptions{TrustedOrigins: []string{"*"}}})
					status, _, message = respond(t, h, arrivingAt(ip, requestTo(tt.host, tt.header...)))
					assert.Equal(t, 200, status, message)
				})
			}
		}
	}
}

// A GET that a page of another site causes is answered, because the page cannot read the reply. One
// of a page that has rebound its name could, so it is refused.
func TestOrigin_Models(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
	get := func(host string, header ...string) int {
		r := requestTo(host, header...)
		r.Method, r.URL.Path = "GET", modelsPath
		status, _, _ := respond(t, h, arrivingAt("127.0.0.1", r))
		return status
	}
	assert.Equal(t, 200, get("localhost"))
	assert.Equal(t, 200, get("localhost", "Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, 403, get("evil.test"))
	assert.Equal(t, 403, get("evil.test", "Authorization", "Bearer x"))
}

// A real server tells where a request has arrived.
func TestOrigin_Loopback(t *testing.T) {
	server := httptest.NewServer(llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil))
	defer server.Close()
	for host, want := range map[string]int{"": 200, "localhost": 200, "llm:8080": 403} {
		r, err := http.NewRequest("POST", server.URL+chatPath, strings.NewReader(chatBody))
		require.NoError(t, err)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, host)
	}
}

func TestOrigin_Errors(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
	for _, tt := range []struct {
		r             *http.Request
		code, message string
	}{
		{requestTo("evil.test:80", "Origin", "http://evil.test:80"), "host_not_allowed",
			"Requests to the host 'evil.test:80' are not allowed, because this server needs no API key and none of its trusted origins has that host."},
		{requestTo("localhost", "Origin", "https://evil.test"), "origin_not_allowed",
			"Requests of web pages of 'https://evil.test' are not allowed, because this server needs no API key and that is none of its trusted origins."},
		{requestTo("localhost", "Sec-Fetch-Site", "cross-site"), "origin_not_allowed",
			"Requests of web pages of 'another site' are not allowed, because this server needs no API key and that is none of its trusted origins."},
	} {
		_, code, message := respond(t, h, tt.r)
		assert.Equal(t, tt.code, code)
		assert.Equal(t, tt.message, message)
	}
}

// A request with a key that was needed is served wherever it comes from, and so is the
// 401 without one. Guests get what those get that need no key.
func TestOrigin_WithKeys(t *testing.T) {
	guests := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		switch secret {
		case testSecret:
			return &llmhttp.Key{ID: "member"}, nil
		case llmhttp.Anonymous:
			return &llmhttp.Key{ID: "guest"}, nil
		}
		return nil, llmhttp.ErrKeyNotFound
	})
	page := []string{"Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site"}
	for name, keys := range map[string]llmhttp.KeyStore{"keys only": keysFor(testKey()), "with guests": guests} {
		t.Run(name, func(t *testing.T) {
			h := llmhttp.NewHandler(new(stubBackend), keys, nil)
			for _, header := range [][]string{nil, page} {
				header := append(slices.Clip(header), "Authorization", "Bearer "+testSecret)
				status, _, message := respond(t, h, arrivingAt("127.0.0.1", requestTo("llm.acme.test", header...)))
				assert.Equal(t, 200, status, message)
			}
			status, _, message := respond(t, h, requestTo("llm.acme.test", page...))
			assert.Equal(t, map[string]int{"keys only": 401, "with guests": 403}[name], status, message)
			status, _, message = respond(t, h, requestTo("llm.acme.test", append(page, "Authorization", "Bearer sk-unknown")...))
			assert.Equal(t, 401, status, message)
		})
	}
}

func TestOrigin_Trusted(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{
		Accept: llmhttp.AcceptOptions{TrustedOrigins: []string{"https://App.example.org", "http://llm.acme.test:8080", "vscode-webview://abc"}},
	})
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"localhost", "https://app.example.org", 200},
		{"localhost", "http://app.example.org", 403},
		{"localhost", "https://app.example.org:444", 403},
		{"localhost", "https://x.app.example.org", 403},
		{"localhost", "vscode-webview://abc", 200},
		{"localhost", "vscode-webview://abd", 403},
		{"llm.acme.test", "http://llm.acme.test", 200}, // of the same host
		{"llm.acme.test:8080", "http://llm.acme.test:8080", 200},
		{"llm.acme.test:9090", "http://llm.acme.test:8080", 200},
		{"llm.acme.test", "https://evil.test", 403},
		{"evil.test", "https://app.example.org", 403},
	} {
		status, _, message := respond(t, h, requestTo(tt.host, "Origin", tt.origin, "Content-Type", "application/json"))
		assert.Equal(t, tt.want, status, "%s %s: %s", tt.host, tt.origin, message)
	}
	for _, malformed := range []string{"", "app.example.org", "localhost:3000", "https://", "https://a/", "https://a/b", "https://a?b", "https://u@a", "https://a#b", "null", "**", "%"} {
		assert.Panics(t, func() {
			llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Accept: llmhttp.AcceptOptions{TrustedOrigins: []string{malformed}}})
		}, malformed)
	}
}

// A server that admits every secret needs none, whatever the IDs of the keys are.
func TestOrigin_AnySecret(t *testing.T) {
	for name, lookup := range map[string]llmhttp.KeyStoreFunc{
		"a key for each secret": func(_ context.Context, secret string) (*llmhttp.Key, error) {
			return &llmhttp.Key{ID: llmhttp.HashSecret(secret)[:8]}, nil
		},
		"some secret is needed": func(_ context.Context, secret string) (*llmhttp.Key, error) {
			if secret == llmhttp.Anonymous {
				return nil, llmhttp.ErrKeyNotFound
			}
			return &llmhttp.Key{ID: "k"}, nil
		},
		"a key for all": func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: "k"}, nil },
		"each secret has a key, guests too": func(_ context.Context, secret string) (*llmhttp.Key, error) {
			if secret == llmhttp.Anonymous {
				return &llmhttp.Key{ID: "guest"}, nil
			}
			return &llmhttp.Key{ID: llmhttp.HashSecret(secret)[:8]}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := llmhttp.NewHandler(new(stubBackend), lookup, nil)
			r := requestTo("evil.test", "Authorization", "Bearer x", "Content-Type", "application/json", "Origin", "http://evil.test")
			status, code, _ := respond(t, h, r)
			assert.Equal(t, 403, status)
			assert.Equal(t, "host_not_allowed", code)
		})
	}
}

// Whether the KeyStore admits unknown secrets is asked once a minute, and kept when the store
// fails. A store that fails at first is asked again.
func TestOrigin_LookupIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := 0
		var unknown *llmhttp.Key
		unknownErr := errors.New("the store is down")
		h := llmhttp.NewHandler(new(stubBackend), llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
			if secret == testSecret {
				return &llmhttp.Key{ID: "k"}, nil
			}
			lookups++
			return unknown, unknownErr
		}), nil)
		ask := func() int {
			status, _, _ := respond(t, h, requestTo("llm.acme.test", "Authorization", "Bearer "+testSecret, "Origin", "https://evil.test"))
			return status
		}
		assert.Equal(t, 200, ask())
		assert.Equal(t, 200, ask())
		assert.Equal(t, 2, lookups)

		unknownErr = llmhttp.ErrKeyNotFound
		for range 5 {
			assert.Equal(t, 200, ask())
		}
		assert.Equal(t, 3, lookups)

		unknown, unknownErr = &llmhttp.Key{ID: "k"}, nil
		time.Sleep(time.Minute + 1)
		assert.Equal(t, 403, ask())
		assert.Equal(t, 403, ask())
		assert.Equal(t, 4, lookups)

		unknown, unknownErr = nil, errors.New("the store is down")
		time.Sleep(time.Minute + 1)
		assert.Equal(t, 403, ask())
		assert.Equal(t, 403, ask())
		assert.Equal(t, 5, lookups)
	})
}
