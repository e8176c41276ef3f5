package llmhttptest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

func TestProtocolMutants(t *testing.T) {
	unchanged := wrapping(func(h http.Handler) http.Handler { return h })
	testMutants(t, protocolSequences.Run, protocolChecks, unchanged, slices.Concat(protocolMutants, framingMutants))
}

// wrapping returns a constructor of a test of chat completions whose Handler is
// in a middleware.
func wrapping(wrap func(http.Handler) http.Handler) func(testing.TB) *protocolTest {
	return func(testing.TB) *protocolTest {
		p := newProtocolTest(nil, completionOptions)
		p.wrap = wrap
		return p
	}
}

// expectingCleanFailure returns a constructor of a test of chat completions, which does not
// fail cleanly, for clients that expect it.
func expectingCleanFailure(testing.TB) *protocolTest {
	opts := completionOptions
	opts.EndsCleanly = true
	return newProtocolTest(nil, opts)
}

// editingRequest returns a constructor of a test whose middleware changes
// requests.
func editingRequest(edit func(r *http.Request)) func(testing.TB) *protocolTest {
	return wrapping(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { edit(r); h.ServeHTTP(w, r) })
	})
}

// editingBody returns a constructor of a test whose middleware changes the bodies of requests.
func editingBody(edit func(body string) string) func(testing.TB) *protocolTest {
	return editingRequest(func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		edited := edit(string(body))
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(edited)), int64(len(edited))
	})
}

// An httpReply is a reply that a middleware can change.
type httpReply struct {
	*httptest.ResponseRecorder
	body string
	cut  bool // the Handler aborted the connection
}

func (r *httpReply) isStream() bool { return r.Header().Get("Content-Type") != "application/json" }

func (r *httpReply) replace(old, new string) { r.body = strings.ReplaceAll(r.body, old, new) }

// editingReply returns a constructor of a test whose middleware changes replies.
func editingReply(edit func(r *httpReply)) func(testing.TB) *protocolTest {
	return wrapping(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reply := &httpReply{ResponseRecorder: httptest.NewRecorder()}
			func() {
				defer func() { reply.cut = recover() == http.ErrAbortHandler }()
				h.ServeHTTP(reply, r)
			}()
			reply.body = reply.Body.String()
			edit(reply)
			maps.Copy(w.Header(), reply.Header())
			w.Header().Del("Content-Length")
			w.WriteHeader(reply.Code)
			_, _ = io.WriteString(w, reply.body)
			if reply.cut {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		})
	})
}

// editingStream is editingReply for streams only.
func editingStream(edit func(r *httpReply)) func(testing.TB) *protocolTest {
	return editingReply(func(r *httpReply) {
		if r.isStream() {
			edit(r)
		}
	})
}

var protocolMutants = []mutant[*protocolTest]{
	{"every request has a valid key", "Keys", editingRequest(func(r *http.Request) { completionOptions.Authorize(r, protocolSecret) })},
	{"the key is not found", "Keys", editingRequest(func(r *http.Request) { r.Header.Del("Authorization") })},
	{"errors are plain text", "Keys", editingReply(func(r *httpReply) {
		if r.Code != http.StatusOK {
			r.Header().Set("Content-Type", "text/plain")
		}
	})},

	{"every body is valid", "MalformedBody", editingBody(func(string) string { return string(completionOptions.Request(false, 1)) })},
	{"a malformed body has status 422", "MalformedBody", editingReply(func(r *httpReply) { r.Code = http.StatusUnprocessableEntity })},

	{"the last of duplicate members is used", "MalformedBody", editingBody(func(body string) string {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &members) != nil || members == nil {
			return body
		}
		b, _ := json.Marshal(members)
		return string(b)
	})},

	{"a member that is refused by default is ignored", "RefusedMembers", editingBody(func(body string) string {
		return strings.Replace(body, `"api_key":"x",`, "", 1)
	})},
	{"a member that only this Handler refuses is ignored", "RefusedMembers", editingBody(func(body string) string {
		return strings.Replace(body, `"x_refused":"x",`, "", 1)
	})},

	{"the message is dropped", "ErrorBeforeReply", editingReply(func(r *httpReply) { r.replace("The dog ate the model.", "Error") })},
	{"the status is always 200", "ErrorBeforeReply", editingReply(func(r *httpReply) { r.Code = http.StatusOK })},
	{"the cause is revealed", "ErrorBeforeReply", editingReply(func(r *httpReply) {
		if r.Code == http.StatusInternalServerError {
			r.body = `{"error":{"message":"a secret cause","type":"server_error"}}`
		}
	})},

	{"a stream that fails ends cleanly", "ErrorInStream", editingReply(func(r *httpReply) { r.cut = false })},
	{"a stream that fails is cut, which clients do not expect", "ErrorInStream", expectingCleanFailure},
	{"the error event is missing", "ErrorInStream", editingStream(func(r *httpReply) { r.body, _, _ = strings.Cut(r.body, `data: {"error"`) })},
	{"a stream that fails ends like a complete one", "ErrorInStream", editingStream(func(r *httpReply) { r.body += "data: [DONE]\n\n" })},

	{"a comment ends an event", "Silence", editingStream(func(r *httpReply) { r.replace(": keep-alive\n", ": keep-alive\n\n") })},
	{"what keeps a stream alive is no comment", "Silence", editingStream(func(r *httpReply) { r.replace(": keep-alive", "keep-alive") })},

	{"text is lost in a stream", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace("Hello", "Hell") })},
	{"text is lost in both replies", kit.RandomCalls, editingReply(func(r *httpReply) { r.replace("Hello ", "") })},
	{"a FinishReason is replaced", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace(`"length"`, `"stop"`) })},
	{"tokens are counted twice", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace(`"completion_tokens":4`, `"completion_tokens":5`) })},
	{"the name of a tool call is changed", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace(`"name":"g"`, `"name":"f"`) })},
	{"cut arguments are completed", kit.RandomCalls, editingReply(func(r *httpReply) { r.replace(`\"b"`, `\"b\""`) })},
	{"reasoning is lost", kit.RandomCalls, editingReply(func(r *httpReply) { r.replace(`"reasoning_content":"Hello "`, `"reasoning_content":""`) })},
	{"an event has no data", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace("\n\n", "\n\n\n") })},
	{"an event has two lines of data", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace("\n\n", "\ndata: {}\n\n") })},
	{"an event is not JSON", kit.RandomCalls, editingStream(func(r *httpReply) { r.body = "data: oops\n\n" + r.body })},
	{"the last event is not terminated", kit.RandomCalls, editingStream(func(r *httpReply) { r.body = strings.TrimSuffix(r.body, "\n") })},
	{"a stream has another Content-Type", kit.RandomCalls, editingStream(func(r *httpReply) { r.Header().Set("Content-Type", "text/plain") })},
	{"a stream is cut", kit.RandomCalls, editingStream(func(r *httpReply) { r.cut = true })},

	{"letters outside of ASCII are lost", kit.RandomCalls, editingStream(func(r *httpReply) { r.replace("東", "?"); r.replace("é", "?") })},
}
