package llmhttptest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
)

var protocolChecks = []check[*protocolTest]{
	{"Keys", "Protocol.Secret reads another header than clients set.", checkProtocolKeys},
	{"MalformedBody", "Route.Chat does not validate the body, or returns an error other than an *Error with status 400.", checkProtocolMalformedBody},
	{"ErrorBeforeReply", "AppendError loses the message, or returns another status.", checkProtocolError},
	{"ErrorInStream", "AppendFailure does not append an event that clients read as an error, or Route.FailsCleanly is wrong.", checkProtocolFailure},
	{"ChosenOrders", "the ChatEncoder relies on an order of chunks that ChatEncoder does not promise.", checkProtocolOrders},
	{"RandomOrders", "an unusual order of chunks; the seed repeats it.", checkProtocolRandom},
}

func checkProtocolKeys(t testing.TB, p *protocolTest) {
	body := p.opts.Request(false, 1)
	p.wantError(t, p.post(t, llmhttp.Reply("Hi"), body, func(*http.Request) {}), http.StatusUnauthorized)
	p.wantError(t, p.post(t, llmhttp.Reply("Hi"), body, func(r *http.Request) { p.opts.Authorize(r, "sk-unknown") }), http.StatusUnauthorized)
	if r := p.post(t, llmhttp.Reply("Hi"), body, p.authorize); r.status != http.StatusOK {
		t.Errorf("the status with a valid key is %d, want 200; the body is %s", r.status, r.body)
	}
}

func checkProtocolMalformedBody(t testing.TB, p *protocolTest) {
	for _, body := range []string{``, `{`, `null`, `[]`, `{}`, `{"model":1}`, `{"model":"m","model":"m"}`} {
		p.wantError(t, p.post(t, llmhttp.Reply("Hi"), []byte(body), p.authorize), http.StatusBadRequest)
	}
}

func checkProtocolError(t testing.TB, p *protocolTest) {
	const message = "The dog ate the model."
	for _, stream := range []bool{false, true} {
		r := p.post(t, llmhttp.Fail(llmhttp.Errorf(http.StatusConflict, "dog", message)), p.opts.Request(stream, 1), p.authorize)
		if got := p.wantError(t, r, http.StatusConflict); got != message {
			t.Errorf("the message of an error before the reply is %q with stream %t, want %q", got, stream, message)
		}
	}
	r := p.post(t, llmhttp.Fail(errors.New("a secret cause")), p.opts.Request(false, 1), p.authorize)
	if got := p.wantError(t, r, http.StatusInternalServerError); strings.Contains(got, "secret") {
		t.Errorf("the message is %q, want it not to reveal an error that is not an *llmhttp.Error", got)
	}
}

func checkProtocolFailure(t testing.TB, p *protocolTest) {
	const message = "The dog ate the rest."
	stream := func(yield func(*llmhttp.ChatChunk, error) bool) {
		if yield(llmhttp.TextChunk("Hello"), nil) {
			yield(nil, llmhttp.Errorf(http.StatusServiceUnavailable, "dog", message))
		}
	}
	r := p.post(t, stream, p.opts.Request(true, 1), p.authorize)
	if r.status != http.StatusOK {
		t.Errorf("the status of a stream that fails later is %d, want 200", r.status)
	}
	switch {
	case r.cut && p.opts.FailsCleanly:
		t.Error("the connection was closed early, want a clean end, so that clients report the error and not the connection")
	case !r.cut && !p.opts.FailsCleanly:
		t.Error("the connection was not closed early, want that, so that no client takes the reply for complete")
	}
	events := parseEvents(t, r.body)
	got, err := p.opts.ReadFailure(events)
	if err != nil || got != message {
		t.Errorf("ReadFailure returned %q and the error %v, want %q", got, err, message)
	}
	if _, err := p.opts.ReadStream(events); err == nil {
		t.Error("ReadStream returned no error for a stream that failed, want one")
	}
}

func checkProtocolOrders(t testing.TB, p *protocolTest) {
	for name, chunks := range chosenOrders {
		p.wantSameReplies(t, name, chunks, 1)
	}
}

func checkProtocolRandom(t testing.TB, p *protocolTest) {
	rng := newRand(t)
	for i := range 60 {
		choices := 1 + rng.IntN(min(p.opts.Choices, 3)) // with more, few choices have several chunks
		p.wantSameReplies(t, fmt.Sprintf("random stream %d", i), randomChunks(rng, choices), choices)
	}
}
