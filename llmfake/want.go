// Assertions about requests.

package llmfake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// wantf fails the test because of r.
func (r *Request) wantf(format string, args ...any) {
	r.server.t.Helper()
	r.server.t.Errorf("llmfake: request %d: %s", r.Number, fmt.Sprintf(format, args...))
}

// WantModel checks the name of the model.
func (r *Request) WantModel(name string) *Request {
	r.server.t.Helper()
	if r.Model != name {
		r.wantf("got model %q, want %q", r.Model, name)
	}
	return r
}

// WantProtocol checks the format: [ChatCompletions], [Messages] or [Responses].
func (r *Request) WantProtocol(name string) *Request {
	r.server.t.Helper()
	if r.Protocol != name {
		r.wantf("got protocol %q, want %q", r.Protocol, name)
	}
	return r
}

// WantUserText checks that the last message of the user contains text.
func (r *Request) WantUserText(text string) *Request {
	r.server.t.Helper()
	if got := r.UserText(); !strings.Contains(got, text) {
		r.wantf("the last user text does not contain what it should\n    got:  %q\n    want: %q", got, text)
	}
	return r
}

// WantSystem checks that the messages of the system and of the developer contain text.
func (r *Request) WantSystem(text string) *Request {
	r.server.t.Helper()
	if got := r.System(); !strings.Contains(got, text) {
		r.wantf("the system text does not contain what it should\n    got:  %q\n    want: %q", got, text)
	}
	return r
}

// WantMessages checks the whole conversation: see [Request.Transcript].
func (r *Request) WantMessages(lines ...string) *Request {
	r.server.t.Helper()
	if got := r.Transcript(); !slices.Equal(got, lines) {
		r.wantf("the messages differ (- got, + want):\n%s", diffLines(got, lines))
	}
	return r
}

// WantTools checks the names of the functions that the client offers, in any order.
func (r *Request) WantTools(names ...string) *Request {
	r.server.t.Helper()
	got := r.Tools()
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(names))) {
		r.wantf("got tools %q, want %q", got, names)
	}
	return r
}

// WantToolResult checks that the newest results of tools have one of the given tool that
// contains text.
func (r *Request) WantToolResult(tool, text string) *Request {
	r.server.t.Helper()
	results := r.ToolResults()
	isWanted := func(t ToolResult) bool { return t.Tool == tool && strings.Contains(t.Text, text) }
	if !slices.ContainsFunc(results, isWanted) {
		var b strings.Builder
		for _, t := range results {
			fmt.Fprintf(&b, "\n    got:  %s: %q", cmp.Or(t.Tool, t.CallID), t.Text)
		}
		r.wantf("no result of a tool is as it should be%s\n    want: %s: %q", b.String(), tool, text)
	}
	return r
}

// WantHeader checks the value of a header.
func (r *Request) WantHeader(name, value string) *Request {
	r.server.t.Helper()
	if got := r.Header.Get(name); got != value {
		r.wantf("got header %s: %q, want %q", name, got, value)
	}
	return r
}

// WantJSON checks a member of the body as the client sent it. path names it, such as
// "messages[0].content" or "temperature". want is compared as JSON; the untyped nil means that
// there must be no such member.
func (r *Request) WantJSON(path string, want any) *Request {
	r.server.t.Helper()
	got, err := lookupJSON(r.Body, path)
	switch {
	case err != nil && want == nil:
	case err != nil:
		r.wantf("%v\n    body: %s", err, quote(string(r.Body)))
	case want == nil:
		r.wantf("got %s: %s, want none", path, got)
	default:
		b, err := json.Marshal(want)
		if err != nil {
			r.wantf("what is wanted of %s is not JSON: %v", path, err)
		} else if canonicalJSON(got) != canonicalJSON(b) {
			r.wantf("%s differs\n    got:  %s\n    want: %s", path, compactJSON(string(got)), b)
		}
	}
	return r
}
