package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

// newTestObserver returns an observer of a request that has arrived now, and whose API key is
// "sk-secret-key-1234".
func newTestObserver(t *testing.T, observation Observation) *requestObserver {
	r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
	cred := &credential{r: r, secret: "sk-secret-key-1234"}
	ro := new(requestObserver)
	of := observedRequest{time.Now(), cred, &requestLog{logger: slog.New(slog.DiscardHandler), ctx: t.Context(), cred: cred}}
	ro.start(t.Context(), func(ctx context.Context, _ *http.Request) (context.Context, Observation) { return ctx, observation }, of)
	return ro
}

// The summary of a request is made of what request tells the observer.
func TestRequestObserver_Summary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *RequestSummary
		ro := newTestObserver(t, Observation{Ended: func(s *RequestSummary) { got = s }})
		assert.True(t, ro.wantsEnd())
		at := func(d time.Duration) time.Time { return ro.data.arrived.Add(d) }
		_, endFirst := ro.startTry(t.Context(), "a")
		time.Sleep(2 * time.Second)
		endFirst(errors.New("failed with sk-secret-key-1234"))
		ro.startTry(t.Context(), "b")
		time.Sleep(time.Second)
		ro.notifyEnded(&endedRequest{
			outcome: &outcome{
				err: errors.New("sk-secret-key-1234"), class: ClassBackend,
				chunks: chunkStats{count: 3, first: 1, firstToken: 2, lastToken: 3},
			},
			record: &UsageRecord{KeyID: "k"}, requested: "my sk-secret-key-1234",
			status: 200, admitted: at(4), firstWrite: at(5), streamed: true, route: "POST /x", scope: ScopeChat,
			reply: ReplySummary{Model: "m", FinishReasons: []llm.FinishReason{llm.FinishStop}},
		})
		assert.Equal(t, Timing{Admitted: 4, FirstChunk: 1, FirstToken: 2, LastToken: 3, FirstWrite: 5, Duration: 3 * time.Second}, got.Timing)
		assert.Equal(t, "my [redacted]", got.Requested)
		assert.Equal(t, "[redacted]", got.Err.Error())
		assert.Equal(t, ClassBackend, got.ErrorClass)
		assert.Equal(t, ReplySummary{Model: "m", FinishReasons: []llm.FinishReason{llm.FinishStop}}, got.Reply)
		assert.Equal(t, 3, got.Chunks)
		assert.True(t, got.Aborted())
		if assert.Len(t, got.Tries, 2) {
			assert.Equal(t, 2*time.Second, got.Tries[0].Duration)
			assert.Equal(t, "failed with [redacted]", got.Tries[0].Err.Error())
			assert.Equal(t, time.Second, got.Tries[1].Duration, "it ends with the request")
		}
	})
}

// Without an Observer, nothing is collected.
func TestRequestObserver_None(t *testing.T) {
	ro := new(requestObserver)
	assert.Equal(t, t.Context(), ro.start(t.Context(), nil, observedRequest{}))
	assert.Equal(t, t.Context(), ro.notifyStarted(t.Context()))
	ctx, end := ro.startTry(t.Context(), "a")
	end(nil)
	assert.Equal(t, t.Context(), ctx)
	assert.False(t, ro.wantsEnd())
	assert.Nil(t, ro.infoStorage())
	var order order.Orderer
	ro.startTranscript(t.Context(), new(llm.ChatRequest), &order)
	assert.Nil(t, order.Sink)
}

// The context of a request is that which the Observer returns, and that of the Backend the one
// of Started.
func TestRequestObserver_Contexts(t *testing.T) {
	type key struct{}
	with := func(ctx context.Context, v string) context.Context { return context.WithValue(ctx, key{}, v) }
	ro, of := new(requestObserver), observedRequest{cred: new(credential)}
	ctx := ro.start(t.Context(), func(ctx context.Context, _ *http.Request) (context.Context, Observation) {
		return with(ctx, "observer"), Observation{Started: func(ctx context.Context, _ *RequestInfo) context.Context { return with(ctx, "started") }}
	}, of)
	assert.Equal(t, "observer", ctx.Value(key{}))
	assert.Equal(t, "started", ro.notifyStarted(ctx).Value(key{}))
	ro = new(requestObserver)
	ctx = ro.start(t.Context(), func(context.Context, *http.Request) (context.Context, Observation) {
		return nil, Observation{Started: func(context.Context, *RequestInfo) context.Context { return nil }}
	}, of)
	assert.Equal(t, t.Context(), ctx)
	assert.Equal(t, ctx, ro.notifyStarted(ctx))
}

// An error has the class of the call where it arose, whatever was called later.
func TestErrorClass(t *testing.T) {
	var nilError *llm.Error
	store := classify(ClassUsageStore, errors.New("down"))
	for name, test := range map[string]struct {
		result exchange.Result
		want   ErrorClass
	}{
		"none":                        {exchange.Result{}, ""},
		"without a class":             {exchange.Result{Err: errors.New("x")}, ClassInternal},
		"with a class":                {exchange.Result{Err: store}, ClassUsageStore},
		"of the first call":           {exchange.Result{Err: classify(ClassBackend, store)}, ClassUsageStore},
		"wrapped":                     {exchange.Result{Err: fmt.Errorf("responses: %w", store)}, ClassUsageStore},
		"of the client":               {exchange.Result{Err: classify(ClassBackend, llm.Errorf(400, "", ""))}, ClassInvalidRequest},
		"that passes a status":        {exchange.Result{Err: classify(ClassLimiter, llm.Errorf(503, "", ""))}, ClassLimiter},
		"of a deadline":               {exchange.Result{Err: classify(ClassBackend, context.DeadlineExceeded)}, ClassTimeout},
		"of a ResponseStore":          {exchange.Result{Err: classify(ClassInternal, fmt.Errorf("x: %w", ErrResponseStore))}, ClassResponseStore},
		"the client has left":         {exchange.Result{Err: store, ClientLeft: true}, ClassCanceled},
		"shutdown":                    {exchange.Result{Err: classify(ClassBackend, errShutdown)}, ClassShutdown},
		"nil":                         {exchange.Result{Err: classify(ClassBackend, nilError)}, ClassBackend},
		"a Backend that is silent":    {exchange.Result{Err: silenceOf(ClassBackend)}, ClassTimeout},
		"a UsageStore that is silent": {exchange.Result{Err: silenceOf(ClassUsageStore)}, ClassUsageStore},
		"another part that is silent": {exchange.Result{Err: silenceOf(ClassInternal)}, ClassInternal},
		"an error that panics":        {exchange.Result{Err: classify(ClassBackend, panickingError{})}, ClassBackend},
	} {
		t.Run(name, func(t *testing.T) {
			cred := &credential{r: httptest.NewRequest("GET", "/", nil)}
			assert.Equal(t, test.want, cred.errorClass(test.result))
		})
	}
	assert.NoError(t, classify(ClassBackend, nil))
	assert.Equal(t, "down", unclassified(store).Error())
	assert.Equal(t, exchange.ErrClientLeft, classify(ClassBackend, exchange.ErrClientLeft))
}

// A panickingError panics when it is unwrapped.
type panickingError struct{}

func (panickingError) Error() string { return "x" }
func (panickingError) Unwrap() error { panic("Unwrap") }

// A panic of a host's function has the class of its call, and so has runtime.Goexit.
func TestInCall(t *testing.T) {
	q := new(request)
	assert.NoError(t, q.inCall(ClassLimiter, func() error { return nil }))
	assert.Empty(t, q.leftIn)
	assert.Panics(t, func() {
		q.inCall(ClassBackend, func() error { return q.inCall(ClassKeyStore, func() error { panic("x") }) })
	})
	assert.Equal(t, ClassKeyStore, q.leftIn)
	q = new(request)
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.inCall(ClassBackend, func() error { runtime.Goexit(); return nil })
	}()
	<-done
	assert.Equal(t, ClassBackend, q.leftIn)
}
