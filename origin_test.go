package llmhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
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

// What a web page can have a browser send does not reach the Backend of a server that needs
// no key.
func TestOrigin_WithoutKeys(t *testing.T) {
	const json = "application/json"
	hostname, err := os.Hostname()
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		host   string
		header []string
		want   int
	}{
		{"a program", "127.0.0.1:8080", []string{"Content-Type", json}, 200},
		{"a program, localhost", "localhost:8080", []string{"Content-Type", json}, 200},
		{"a program, below localhost", "llm.localhost", []string{"Content-Type", json}, 200},
		{"a program, IPv6", "[::1]:8080", []string{"Content-Type", json}, 200},
		{"a program, another address", "192.0.2.7:8080", []string{"Content-Type", json}, 200},
		{"a program, name of the machine", strings.ToUpper(hostname) + ":8080", []string{"Content-Type", json}, 200},
		{"a program, mDNS name", hostname + ".local:8080", []string{"Content-Type", json}, 200},
		{"a program with a key", "127.0.0.1:8080", []string{"Authorization", "Bearer sk-any"}, 200},
		{"httptest", "example.com", []string{"Content-Type", json}, 200},
		{"no Host", "", []string{"Content-Type", json}, 200},

		{"no Content-Type", "127.0.0.1:8080", nil, 415},
		{"no Content-Type, Basic", "127.0.0.1:8080", []string{"Authorization", "Basic eDp5"}, 415},
		{"text/plain", "127.0.0.1:8080", []string{"Content-Type", "text/plain"}, 415},
		{"a form", "127.0.0.1:8080", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},

		{"page of the server", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 200},
		{"page of loopback", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "http://localhost:3000", "Sec-Fetch-Site", "cross-site"}, 200},
		{"page of loopback, Content-Type is missing", "127.0.0.1:8080", []string{"Origin", "http://[::1]:3000"}, 200},
		{"typed address", "127.0.0.1:8080", []string{"Content-Type", json, "Sec-Fetch-Site", "none"}, 200},

		{"page of another site", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "https://evil.test"}, 403},
		{"page of another site with a key", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "https://evil.test", "Authorization", "Bearer sk-any"}, 403},
		{"page of another port of an address", "192.0.2.7:8080", []string{"Content-Type", json, "Origin", "http://192.0.2.7:9090"}, 403},
		{"page of loopback to another machine", "192.0.2.7:8080", []string{"Content-Type", json, "Origin", "http://localhost:3000"}, 403},
		{"opaque origin", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "null"}, 403},
		{"empty origin", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", ""}, 403},
		{"extension", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "chrome-extension://localhost"}, 403},
		{"two origins", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "http://127.0.0.1:8080", "Origin", "http://127.0.0.1:8080"}, 403},
		{"name like loopback", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "http://localhost.evil.test"}, 403},
		{"user like loopback", "127.0.0.1:8080", []string{"Content-Type", json, "Origin", "http://localhost@evil.test"}, 403},
		{"cross-site without Origin", "127.0.0.1:8080", []string{"Content-Type", json, "Sec-Fetch-Site", "cross-site"}, 403},

		{"rebound name", "evil.test:8080", []string{"Content-Type", json, "Origin", "http://evil.test:8080"}, 403},
		{"rebound name without Origin", "evil.test:8080", []string{"Content-Type", json}, 403},
		{"rebound name with a key", "evil.test:8080", []string{"Content-Type", json, "Authorization", "Bearer sk-any"}, 403},
		{"rebound name with a dot", "evil.test.:8080", []string{"Content-Type", json}, 403},
		{"rebound name like an address", "127.0.0.1.evil.test", []string{"Content-Type", json}, 403},
		{"rebound name that ends in a digit", "evil.test1", []string{"Content-Type", json}, 403},
		{"rebound name like localhost", "notlocalhost", []string{"Content-Type", json}, 403},
		{"malformed host", "[", []string{"Content-Type", json}, 403},
	} {
		for name, keys := range map[string]llmhttp.KeyStore{
			"AllowAll": llmhttp.AllowAll("a"),
			"wrapped":  llmhttp.KeyStoreFunc(llmhttp.AllowAll("a").Lookup),
			"any key":  llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return new(llmhttp.Key), nil }),
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				calls := 0
				h := llmhttp.NewHandler(countCalls(&calls), keys, nil)
				status, _, message := respond(t, h, requestTo(tt.host, tt.header...))
				assert.Equal(t, tt.want, status, message)
				assert.Equal(t, tt.want == 200, calls == 1, "the Backend was called")

				h = llmhttp.NewHandler(new(stubBackend), keys, &llmhttp.Options{TrustedOrigins: []string{"*"}})
				status, _, message = respond(t, h, requestTo(tt.host, append(tt.header, "Content-Type", json)...))
				assert.Equal(t, tt.header != nil && tt.want == 415 && tt.header[0] == "Content-Type", status == 415, message)
				assert.NotEqual(t, 403, status, message)
			})
		}
	}
}

// The list of models does not reach a page either.
func TestOrigin_Models(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
	get := func(host string, header ...string) int {
		r := requestTo(host, header...)
		r.Method, r.URL.Path = "GET", modelsPath
		status, _, _ := respond(t, h, r)
		return status
	}
	assert.Equal(t, 200, get("localhost"))
	assert.Equal(t, 403, get("localhost", "Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, 403, get("localhost", "Origin", "https://evil.test"))
	assert.Equal(t, 403, get("evil.test"))
	assert.Equal(t, 403, get("evil.test", "Authorization", "Bearer x"))
}

func TestOrigin_Errors(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
	for _, tt := range []struct {
		r             *http.Request
		code, message string
	}{
		{requestTo("evil.test:80"), "host_not_allowed",
			"Requests to the host 'evil.test:80' are not allowed, because this server needs no API key and none of its trusted origins has that host."},
		{requestTo("localhost", "Origin", "https://evil.test"), "origin_not_allowed",
			"Requests of web pages of 'https://evil.test' are not allowed, because this server needs no API key and that is none of its trusted origins."},
		{requestTo("localhost", "Sec-Fetch-Site", "cross-site"), "origin_not_allowed",
			"Requests of web pages of 'another site' are not allowed, because this server needs no API key and that is none of its trusted origins."},
		{requestTo("localhost"), "unsupported_media_type",
			"Missing content type. This API only accepts 'application/json'. The header 'Content-Type' is required, because this server needs no API key."},
	} {
		_, code, message := respond(t, h, tt.r)
		assert.Equal(t, tt.code, code)
		assert.Equal(t, tt.message, message)
	}
}

// A request with a key that was needed is served wherever it comes from, and so is the
// 401 without one.
func TestOrigin_WithKeys(t *testing.T) {
	guest := &llmhttp.Key{ID: "guest"}
	member := &llmhttp.Key{ID: "member"}
	mixed := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret == testSecret {
			return member, nil
		}
		return guest, nil
	})
	for name, keys := range map[string]llmhttp.KeyStore{"keys only": keysFor(testKey()), "with guests": mixed} {
		t.Run(name, func(t *testing.T) {
			h := llmhttp.NewHandler(new(stubBackend), keys, nil)
			for _, header := range [][]string{
				{"Authorization", "Bearer " + testSecret},
				{"Authorization", "Bearer " + testSecret, "Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site"},
			} {
				status, _, message := respond(t, h, requestTo("llm.acme.test", header...))
				assert.Equal(t, 200, status, message)
			}
			want := map[string]int{"keys only": 401, "with guests": 403}[name]
			for _, header := range [][]string{nil, {"Authorization", "Bearer sk-unknown"}} {
				status, _, message := respond(t, h, requestTo("llm.acme.test", header...))
				assert.Equal(t, want, status, message)
			}
		})
	}
}

func TestOrigin_Trusted(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{
		TrustedOrigins: []string{"https://App.example.org", "http://llm.acme.test:8080", "vscode-webview://abc"},
	})
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"localhost", "https://app.example.org", 200},
		{"localhost", "https://APP.example.org", 200},
		{"localhost", "http://app.example.org", 403},
		{"localhost", "https://app.example.org:444", 403},
		{"localhost", "https://x.app.example.org", 403},
		{"localhost", "vscode-webview://abc", 200},
		{"localhost", "vscode-webview://abd", 403},
		{"llm.acme.test", "http://llm.acme.test", 200},
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
			llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{TrustedOrigins: []string{malformed}})
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

// What the KeyStore says about requests without a secret is asked once a minute, and kept
// when the store fails.
func TestOrigin_LookupIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := 0
		var anonymous *llmhttp.Key
		anonymousErr := error(llmhttp.ErrKeyNotFound)
		h := llmhttp.NewHandler(new(stubBackend), llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
			switch secret {
			case llmhttp.Anonymous:
				lookups++
				return anonymous, anonymousErr
			case testSecret:
				return &llmhttp.Key{ID: "k"}, nil
			}
			return nil, llmhttp.ErrKeyNotFound
		}), nil)
		ask := func() int {
			status, _, _ := respond(t, h, requestTo("llm.acme.test", "Authorization", "Bearer "+testSecret))
			return status
		}
		for range 5 {
			assert.Equal(t, 200, ask())
		}
		assert.Equal(t, 1, lookups)

		anonymous, anonymousErr = &llmhttp.Key{ID: "k"}, nil
		time.Sleep(time.Minute + 1)
		assert.Equal(t, 403, ask())
		assert.Equal(t, 403, ask())
		assert.Equal(t, 2, lookups)

		anonymous, anonymousErr = nil, errors.New("the store is down")
		time.Sleep(time.Minute + 1)
		assert.Equal(t, 403, ask())
		assert.Equal(t, 403, ask())
		assert.Equal(t, 3, lookups)
	})
}

// A store that fails at first is asked again.
func TestOrigin_LookupFails(t *testing.T) {
	anonymousErr := errors.New("the store is down")
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret == llmhttp.Anonymous && anonymousErr != nil {
			return nil, anonymousErr
		}
		return &llmhttp.Key{ID: "k"}, nil
	}), nil)
	ask := func() int {
		status, _, _ := respond(t, h, requestTo("llm.acme.test", "Authorization", "Bearer x"))
		return status
	}
	assert.Equal(t, 200, ask())
	anonymousErr = nil
	assert.Equal(t, 403, ask())
}
