package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/quotawatch"
)

// The secret and the example of the specification's libraries.
const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A received is a request that a receiver has accepted.
type received struct {
	id   string
	body quotaMessage
}

// newReceiver returns a handler that checks signatures, replies with what status returns, and sends what it
// accepts to a channel.
func newReceiver(t *testing.T, status func() int) (http.Handler, <-chan received) {
	accepted := make(chan received, 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if !assert.NoError(t, err) {
			return
		}
		id, timestamp := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		seconds, err := strconv.ParseInt(timestamp, 10, 64)
		assert.NoError(t, err)
		assert.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
		assert.NoError(t, err)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "." + string(body)))
		assert.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), r.Header.Get("webhook-signature"))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		s := status()
		w.WriteHeader(s)
		if s/100 == 2 {
			m := received{id: id}
			assert.NoError(t, json.Unmarshal(body, &m.body))
			accepted <- m
		}
	}), accepted
}

// The signature is that of an example of the specification's libraries.
func TestWebhook_Sign(t *testing.T) {
	w, err := newWebhook("https://example.com", webhookSecret)
	require.NoError(t, err)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", w.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
}

func TestWebhook_Mistakes(t *testing.T) {
	for _, test := range []struct{ url, secret, want string }{
		{"hooks.example.com", webhookSecret, "-quota-webhook: expected a URL"},
		{"ftp://hooks.example.com/token", webhookSecret, "-quota-webhook: expected a URL"},
		{"https://hooks.example.com", "", "LLMHTTP_QUOTA_WEBHOOK_SECRET: must be whsec_"},
		{"https://hooks.example.com", strings.TrimPrefix(webhookSecret, "whsec_"), "must be whsec_"},
		{"https://hooks.example.com", "whsec_c2hvcnQ=", "at least 24 random bytes"},
		{"https://hooks.example.com", "whsec_?", "base64"},
	} {
		_, err := newWebhook(test.url, test.secret)
		require.ErrorContains(t, err, test.want)
		assert.NotContains(t, err.Error(), "token")
	}
}

// A server that is slow, redirects or is down fails the call, and no error has the URL.
func TestWebhook_Fails(t *testing.T) {
	ended := make(chan struct{})
	status := http.StatusInternalServerError
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-ended }))
	defer slow.Close()
	defer close(ended)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer failing.Close()
	down := httptest.NewServer(nil)
	down.Close()
	call := func(url string) error {
		w, err := newWebhook(url+"/secret-token", webhookSecret)
		require.NoError(t, err)
		w.client.Timeout = 50 * time.Millisecond
		return w.quotaReached(t.Context(), &quotawatch.Event{ID: "quota_1"})
	}
	assert.ErrorContains(t, call(slow.URL), "Timeout")
	assert.ErrorContains(t, call(failing.URL), "Internal Server Error")
	status = http.StatusFound
	assert.ErrorContains(t, call(failing.URL), "Found")
	err := call(down.URL)
	assert.ErrorContains(t, err, "refused")
	assert.NotContains(t, err.Error(), "secret-token")
}

// Two copies tell a webhook once that 80 % of a quota are used. A call that fails is repeated. What
// could not be told before the copies have ended is told by the next ones.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var failures atomic.Int32
	handler, accepted := newReceiver(t, func() int {
		if failures.Add(-1) >= 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	receiver := httptest.NewUnstartedServer(handler)
	receiver.Listener.Close()
	receiver.Listener = l
	receiver.Start()

	dsn, models, redis := newDatabase(t, servertest.SharedPostgres(t)), startUpstream(t, 0), servertest.SharedRedis(t).DSN()
	begin := func() *process {
		return start(t, newCommand([]string{
			"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=" + redis, "LLMHTTP_UPSTREAM=models=" + models.url + "/v1", "LLMHTTP_KEY_MODELS=" + upstreamKey,
			"LLMHTTP_QUOTA_WEBHOOK=http://" + address + "/token", "LLMHTTP_QUOTA_WEBHOOK_SECRET=" + webhookSecret,
		}, "-redis-timeout", "10s", "-usage-delay", "0s"))
	}
	copies := []*process{begin(), begin()}
	k := createKey(t, dsn, "--quota", "200/month")
	used := 0
	chat := func(p *process, words int) {
		u := client{p.url, k.Secret}.mustChat(t, words)
		used += u.PromptTokens + u.CompletionTokens
	}
	next := func() received {
		t.Helper()
		select {
		case m := <-accepted:
			return m
		case <-time.After(timeout):
			require.Fail(t, "timeout", copies[0].Output.String()+copies[1].Output.String())
			return received{}
		}
	}

	failures.Store(2)
	for used < 160 {
		chat(copies[0], 10)
	}
	first := next()
	assert.Equal(t, "quota.reached", first.body.Type)
	assert.Equal(t, quotaData{
		Account: t.Name(), SubjectKind: llmhttp.KindKey, Subject: k.ID, Share: 80, Start: first.body.Data.Start,
		UsedTokens: first.body.Data.UsedTokens, QuotaTokens: 200,
	}, first.body.Data)
	assert.GreaterOrEqual(t, first.body.Data.UsedTokens, int64(160))
	assert.Less(t, failures.Load(), int32(0))

	// The receiver is down until the copies were started again.
	receiver.Close()
	status, reply := client{copies[0].url, k.Secret}.send(t, "POST", chatPath, chatBody(false, 200))
	require.Equal(t, 429, status, reply)
	copies[0].awaitOutput(t, "quota event not handled")
	for i, p := range copies {
		p.stop(t)
		copies[i] = begin()
	}
	l, err = net.Listen("tcp", address)
	require.NoError(t, err)
	again := httptest.NewUnstartedServer(handler)
	again.Listener.Close()
	again.Listener = l
	again.Start()
	defer again.Close()
	for range 3 {
		for _, p := range copies {
			status, reply := client{p.url, k.Secret}.send(t, "POST", chatPath, chatBody(false, 200))
			require.Equal(t, 429, status, reply)
		}
	}
	second := next()
	assert.Equal(t, 100, second.body.Data.Share)
	assert.NotEqual(t, first.id, second.id)
	for _, p := range copies {
		p.stop(t)
		assert.NotContains(t, p.Output.String(), "token")
	}
	assert.Empty(t, accepted, "each share was told once")
}
