// Checks of a Protocol.

package llmhttptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

var protocolChecks = []check[*protocolTest]{
	{"Keys", checkProtocolKeys},
	{
		"MalformedBody",
		checkProtocolMalformedBody,
	},
	{
		"RefusedMembers",
		checkProtocolRefusedMembers,
	},
	{"ErrorBeforeReply", checkProtocolError},
	{
		"ErrorInStream",
		checkProtocolFailure,
	},
	{
		"Silence",
		checkProtocolSilence,
	},
}

func checkProtocolKeys(t testing.TB, p *protocolTest) {
	body := p.opts.Request(false, 1)
	p.wantError(t, p.post(t, llm.Reply("Hi"), body, func(*http.Request) {}), http.StatusUnauthorized)
	p.wantError(
		t,
		p.post(t, llm.Reply("Hi"), body, func(r *http.Request) { p.opts.Authorize(r, "sk-unknown") }),
		http.StatusUnauthorized,
	)
	if r := p.post(t, llm.Reply("Hi"), body, p.authorize); r.status != http.StatusOK {
		t.Errorf("the status with a valid key is %d, want 200; the body is %s", r.status, r.body)
	}
}

func checkProtocolMalformedBody(t testing.TB, p *protocolTest) {
	bodies := []string{``, `{`, `null`, `[]`, `{}`, `{"model":1}`, `{"model":"m","model":"m"}`}
	valid := p.opts.Request(false, 1)
	if name, value, ok := firstMember(valid); ok {
		bodies = append(bodies, string(withMember(valid, name, value))) // which is a duplicate
	}
	for _, body := range bodies {
		p.wantRefused(t, []byte(body))
	}
}

// checkProtocolRefusedMembers adds members to a valid request that the Handler refuses by
// default or by its options.
func checkProtocolRefusedMembers(t testing.TB, p *protocolTest) {
	valid := p.opts.Request(false, 1)
	if _, _, ok := firstMember(valid); !ok {
		t.Skip("requests are not JSON objects")
	}
	for _, name := range []string{"api_key", refusedMember} {
		p.wantRefused(t, withMember(valid, name, json.RawMessage(`"x"`)))
	}
}

// wantRefused checks that a request with the given body gets an error with status 400.
func (p *protocolTest) wantRefused(t testing.TB, body []byte) {
	t.Helper()
	r := p.post(t, llm.Reply("Hi"), body, p.authorize)
	if r.status == http.StatusOK {
		t.Errorf("the body %q was accepted, want an error with status %d", body, http.StatusBadRequest)
		return
	}
	p.wantError(t, r, http.StatusBadRequest)
}

// firstMember returns a member of a JSON object; ok is false if body is none, or is empty.
func firstMember(body []byte) (name string, value json.RawMessage, ok bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return "", nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		return name, members[name], true
	}
	return "", nil, false
}

// withMember returns body, a JSON object that is not empty, with another member before the others.
func withMember(body []byte, name string, value json.RawMessage) []byte {
	return fmt.Appendf(nil, "{%q:%s,%s", name, value, bytes.TrimPrefix(bytes.TrimSpace(body), []byte("{")))
}

func checkProtocolError(t testing.TB, p *protocolTest) {
	const message = "The dog ate the model."
	for _, stream := range []bool{false, true} {
		r := p.post(t, llm.Fail(llm.Errorf(http.StatusConflict, "dog", message)), p.opts.Request(stream, 1), p.authorize)
		if got := p.wantError(t, r, http.StatusConflict); got != message {
			t.Errorf("the message of an error before the reply is %q with stream %t, want %q", got, stream, message)
		}
	}
	r := p.post(t, llm.Fail(errors.New("a secret cause")), p.opts.Request(false, 1), p.authorize)
	if got := p.wantError(t, r, http.StatusInternalServerError); strings.Contains(got, "secret") {
		t.Errorf("the message is %q, want it not to reveal an error that is not an *llm.Error", got)
	}
}

func checkProtocolFailure(t testing.TB, p *protocolTest) {
	const message = "The dog ate the rest."
	stream := func(yield func(*llm.ChatChunk, error) bool) {
		if yield(llm.TextChunk("Hello"), nil) {
			yield(nil, llm.Errorf(http.StatusServiceUnavailable, "dog", message))
		}
	}
	r := p.post(t, stream, p.opts.Request(true, 1), p.authorize)
	if r.status != http.StatusOK {
		t.Errorf("the status of a stream that fails later is %d, want 200", r.status)
	}
	switch {
	case r.cut && p.opts.EndsCleanly:
		t.Error("the connection was closed early, want a clean end, so that clients report the error and not the connection")
	case !r.cut && !p.opts.EndsCleanly:
		t.Error("the connection was not closed early, want that, so that no client takes the reply for complete")
	}
	p.wantFailure(t, r, message)
}

// wantFailure checks that clients learn that a stream has failed.
func (p *protocolTest) wantFailure(t testing.TB, r protocolReply, message string) {
	t.Helper()
	if p.opts.ReadFailure == nil {
		return
	}
	events := p.split(t, r)
	got, err := p.opts.ReadFailure(events)
	if err != nil || got != message {
		t.Errorf("ReadFailure returned %q and the error %v, want %q", got, err, message)
	}
	if _, err := p.opts.ReadStream(events); err == nil {
		t.Error("ReadStream returned no error for a stream that failed, want one")
	}
}

// checkProtocolSilence checks streams whose Backend is silent, so that the Handler keeps them
// alive, before each chunk and before a failure.
func checkProtocolSilence(t testing.TB, p *protocolTest) {
	chunks := []*llm.ChatChunk{llm.TextChunk("Hel"), llm.TextChunk("lo")}
	slowly := func(err error) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			time.Sleep(silence)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, c := range chunks {
				if !yield(c.Clone(), nil) {
					return
				}
				time.Sleep(silence)
			}
		}
	}
	r := p.serveSilent(t, slowly(nil))
	if r.wantComplete(t, "the stream of a silent Backend", p.opts.StreamType) {
		got, err := p.opts.ReadStream(p.split(t, r))
		if err != nil {
			t.Errorf("ReadStream returned the error %v for a stream that was kept alive, want nil; the stream is %.500q", err, r.body)
		} else if textOf(got) != "Hello" {
			t.Errorf("the text of a stream that was kept alive is %q, want %q", textOf(got), "Hello")
		}
	}
	const message = "The dog ate all of it."
	r = p.serveSilent(t, slowly(llm.Errorf(http.StatusConflict, "dog", message)))
	if r.status == http.StatusOK { // the stream has begun
		p.wantFailure(t, r, message)
	} else if got := p.wantError(t, r, http.StatusConflict); got != message {
		t.Errorf("the message of an error after a silence is %q, want %q", got, message)
	}
}
