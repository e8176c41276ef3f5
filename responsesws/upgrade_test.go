package responsesws_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responsesws"
)

// An upgrade is refused with the reply of the Handler, or with an error of this package in the same form.
func TestUpgrade_Refused(t *testing.T) {
	for name, test := range map[string]struct {
		config config
		path   string
		header []string
		status int
		code   string // "" for null
	}{
		"no key":          {header: []string{"Authorization", ""}, status: 401},
		"unknown key":     {header: []string{"Authorization", "Bearer sk-other"}, status: 401, code: "invalid_api_key"},
		"no scope":        {config: config{key: llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeEmbeddings}}}, status: 403, code: "missing_scope"},
		"limit":           {config: config{key: llmhttp.Key{Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(0)}}}, status: 429, code: "rate_limit_exceeded"},
		"other path":      {path: "/v1/other", status: 404},
		"other prefix":    {path: "/x/v1/responses", status: 404},
		"other site":      {header: []string{"Origin", "https://evil.example"}, status: 403, code: "origin_not_allowed"},
		"other site, new": {header: []string{"Sec-Fetch-Site", "cross-site"}, status: 403, code: "origin_not_allowed"},
		"other scheme": {
			config: config{ws: responsesws.Options{TrustedOrigins: []string{"https://app.example"}}},
			header: []string{"Origin", "http://app.example"}, status: 403, code: "origin_not_allowed",
		},
		"keyless, rebound": {
			config: config{keys: llmhttp.AllowAll("all")}, header: []string{"Origin", "http://evil.example", "Host", "evil.example"},
			status: 403, code: "origin_not_allowed",
		},
		"version": {header: []string{"Sec-WebSocket-Version", "12"}, status: 101}, // the client sets its own
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, test.config)
				path := test.path
				if path == "" {
					path = "/v1/responses"
				}
				ws, resp, err := s.upgrade(path, test.header...)
				require.NotNil(t, resp)
				assert.Equal(t, test.status, resp.StatusCode)
				if test.status == 101 {
					require.NoError(t, err)
					ws.CloseNow()
					return
				}
				require.Error(t, err)
				assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				body := readAll(t, resp.Body)
				code := "null"
				if test.code != "" {
					code = quoted(test.code)
				}
				assert.Contains(t, body, `"code":`+code)
				assert.Contains(t, body, `"error":{"`)
			})
		})
	}
}

// Web pages that are trusted, those of the server itself, and programs may open a WebSocket.
func TestUpgrade_Origins(t *testing.T) {
	for name, test := range map[string]struct {
		trusted []string
		header  []string
	}{
		"program":         {nil, nil},
		"own page":        {nil, []string{"Origin", "http://localhost"}},
		"own page, new":   {nil, []string{"Sec-Fetch-Site", "same-origin"}},
		"trusted":         {[]string{"https://APP.example"}, []string{"Origin", "https://app.example", "Sec-Fetch-Site", "cross-site"}},
		"every page":      {[]string{"*"}, []string{"Origin", "https://other.example"}},
		"user navigation": {nil, []string{"Sec-Fetch-Site", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, config{ws: responsesws.Options{TrustedOrigins: test.trusted}})
				c := s.dial(test.header...)
				c.create(`"input":"Hello"`)
				c.complete()
			})
		})
	}
	assert.PanicsWithValue(t, "responsesws: Options.TrustedOrigins must have schemes and hosts, such as https://app.example.com: app.example.com",
		func() {
			responsesws.New(http.NotFoundHandler(), &responsesws.Options{TrustedOrigins: []string{"app.example.com"}})
		})
	assert.PanicsWithValue(t, "responsesws: nil Handler", func() { responsesws.New(nil, nil) })
}

// The reply to an upgrade has the headers of the Handler, and takes one request from the limits.
func TestUpgrade_Headers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{key: llmhttp.Key{Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(2)}}, ws: responsesws.Options{KeepAlive: -1}})
		ws, resp, err := s.upgrade("/v1/responses")
		require.NoError(t, err)
		defer ws.CloseNow()
		assert.Regexp(t, "^req_", resp.Header.Get("X-Request-Id"))
		assert.Equal(t, "1", resp.Header.Get("X-Ratelimit-Remaining-Requests"))
		c := &client{t, ws}
		c.create(`"input":"one"`)
		c.complete()
		c.create(`"input":"two"`)
		e := c.terminal()
		assert.EqualValues(t, 429, e["status"])
		for _, headers := range []any{e["headers"], e["error"].(object)["headers"]} {
			assert.Regexp(t, "^[0-9]+$", headers.(object)["retry-after"])
			assert.Regexp(t, "^req_", headers.(object)["x-request-id"])
			assert.Equal(t, "0", headers.(object)["x-ratelimit-remaining-requests"])
			assert.NotContains(t, headers, "content-type")
		}
		time.Sleep(time.Minute)
		c.create(`"input":"three"`)
		c.complete()
	})
}

// Each response has an ID of its own, with which its usage is recorded, also if the host takes the ID from a header.
func TestUpgrade_RequestID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		usage := memory.NewUsageStore()
		s := start(t, config{key: llmhttp.Key{Account: "acme"}, opts: llmhttp.Options{
			Usage: usage, RequestID: func(r *http.Request) string { return r.Header.Get("X-Request-Id") },
		}})
		c := s.dial("X-Request-Id", "req_of_proxy")
		for range 2 {
			c.create(`"input":"x"`)
			c.complete()
		}
		synctest.Wait()
		sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", To: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		assert.EqualValues(t, 2, sums[0].Requests)
	})
}

// Requests that are no upgrades reach the Handler behind it.
func TestUpgrade_OtherRequestsPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		for path, test := range map[string]struct {
			method, upgrade string
			status          int
		}{
			"/v1/models":           {"GET", "", 401},
			"/v1/responses":        {"GET", "h2c", 401},
			"/v1/chat/completions": {"POST", "websocket", 401},
		} {
			r, err := http.NewRequestWithContext(t.Context(), test.method, "http://localhost"+path, strings.NewReader(""))
			require.NoError(t, err)
			r.Header.Set("Upgrade", test.upgrade)
			resp, err := s.client.Do(r)
			require.NoError(t, err)
			assert.Equal(t, test.status, resp.StatusCode)
			resp.Body.Close()
		}
	})
}

// The number of connections is bounded, in all and for each client.
func TestUpgrade_TooManyConnections(t *testing.T) {
	anyKey := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: secret}, nil })
	for name, test := range map[string]struct {
		ws     responsesws.Options
		keys   []string
		status int // of the last
	}{
		"in all":             {responsesws.Options{MaxConnections: 2}, []string{"a", "b", "c"}, 503},
		"of a client":        {responsesws.Options{MaxPerClient: 1}, []string{"a", "b", "a"}, 429},
		"with more spaces":   {responsesws.Options{MaxPerClient: 1}, []string{"a", " a"}, 429},
		"no limit of either": {responsesws.Options{MaxConnections: -1, MaxPerClient: -1}, []string{"a", "a", "a"}, 101},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, config{ws: test.ws, keys: anyKey})
				var open []*websocket.Conn
				for i, key := range test.keys {
					ws, resp, err := s.upgrade("/v1/responses", "Authorization", "Bearer "+key)
					if i < len(test.keys)-1 || test.status == 101 {
						require.NoError(t, err)
						open = append(open, ws)
						continue
					}
					require.Error(t, err)
					assert.Equal(t, test.status, resp.StatusCode)
					assert.Contains(t, readAll(t, resp.Body), "websocket_connections_exceeded")
				}
				require.NoError(t, open[0].Close(websocket.StatusNormalClosure, ""))
				synctest.Wait()
				ws, _, err := s.upgrade("/v1/responses", "Authorization", "Bearer "+test.keys[0])
				require.NoError(t, err, "a slot is free again")
				for _, c := range append(open[1:], ws) {
					c.CloseNow()
				}
			})
		})
	}
}

// Middleware that hides the connection is named in the log.
func TestUpgrade_CannotHijack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.handler.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		})
		ws, _, err := s.upgrade("/v1/responses")
		if err == nil {
			ws.CloseNow()
		}
		synctest.Wait()
		assert.Contains(t, s.log.String(), "does middleware hide http.Hijacker?")
	})
}
