// Matchers of chats and of requests in general.

package llmfake

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// A Matcher selects requests. See [Server.When].
type Matcher struct {
	text      string // as in Go code, for messages
	match     func(r *Request) bool
	got       func(r *Request) string // what a request has in place of what is wanted; may be nil
	operation llmhttp.Operation       // other than chat; "" means any
}

// Match returns a Matcher that calls f. The text describes in messages what it selects. f must
// not modify the request. It may be called concurrently, and several times for a request, on
// goroutines of the server: see [Func].
func Match(text string, f func(r *Request) bool) Matcher {
	mustNotBeNil("Match", f == nil)
	return Matcher{text: fmt.Sprintf("Match(%q)", text), match: f}
}

// Model returns a Matcher for requests for a model. A * in the name stands for any text.
func Model(name string) Matcher {
	pattern := wildcard(name)
	return Matcher{
		text:  fmt.Sprintf("Model(%q)", name),
		match: func(r *Request) bool { return pattern.MatchString(r.Model) },
		got:   func(r *Request) string { return fmt.Sprintf("model %q", r.Model) },
	}
}

// wildcard compiles a pattern in which * stands for any text.
func wildcard(pattern string) *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

// Protocol returns a Matcher for requests in a format: [ChatCompletions], [Messages] or
// [Responses].
func Protocol(name string) Matcher {
	return Matcher{
		text:  fmt.Sprintf("Protocol(%q)", name),
		match: func(r *Request) bool { return r.Protocol == name },
		got:   func(r *Request) string { return fmt.Sprintf("protocol %q", r.Protocol) },
	}
}

// UserText returns a Matcher for requests whose last user text contains text: see
// [Request.UserText].
func UserText(text string) Matcher {
	return Matcher{
		text:  fmt.Sprintf("UserText(%q)", text),
		match: func(r *Request) bool { return strings.Contains(r.UserText(), text) },
		got:   func(r *Request) string { return "user text " + quote(r.UserText()) },
	}
}

// UserTextMatches returns a Matcher for requests whose last user text matches a regular
// expression. It panics if that is malformed.
func UserTextMatches(expr string) Matcher {
	re := regexp.MustCompile(expr)
	return Matcher{
		text:  fmt.Sprintf("UserTextMatches(%q)", expr),
		match: func(r *Request) bool { return re.MatchString(r.UserText()) },
		got:   func(r *Request) string { return "user text " + quote(r.UserText()) },
	}
}

// SystemText returns a Matcher for requests whose system or developer texts contain text.
func SystemText(text string) Matcher {
	return Matcher{
		text:  fmt.Sprintf("SystemText(%q)", text),
		match: func(r *Request) bool { return strings.Contains(r.System(), text) },
		got:   func(r *Request) string { return "system text " + quote(r.System()) },
	}
}

// HasToolResult returns a Matcher for requests that bring a new result of the given tool that
// contains text. An empty name stands for any tool.
func HasToolResult(tool, text string) Matcher {
	return Matcher{
		text: fmt.Sprintf("HasToolResult(%q, %q)", tool, text),
		match: func(r *Request) bool {
			return slices.ContainsFunc(r.ToolResults(), func(t ToolResult) bool {
				return (tool == "" || t.Tool == tool) && strings.Contains(t.Text, text)
			})
		},
		got: func(r *Request) string {
			results := r.ToolResults()
			if len(results) == 0 {
				return "no result of a tool"
			}
			var texts []string
			for _, t := range results {
				texts = append(texts, fmt.Sprintf("%s %s", t.Tool, quote(t.Text)))
			}
			return "results " + strings.Join(texts, ", ")
		},
	}
}

// OffersTool returns a Matcher for requests that offer a function to the model.
func OffersTool(name string) Matcher {
	return Matcher{
		text:  fmt.Sprintf("OffersTool(%q)", name),
		match: func(r *Request) bool { return slices.Contains(r.Tools(), name) },
		got:   func(r *Request) string { return fmt.Sprintf("tools %q", r.Tools()) },
	}
}

// Turn returns a Matcher for the nth turn of a conversation: see [Request.Turn].
func Turn(n int) Matcher {
	return Matcher{
		text:  fmt.Sprintf("Turn(%d)", n),
		match: func(r *Request) bool { return r.Turn() == n },
		got:   func(r *Request) string { return "turn " + strconv.Itoa(r.Turn()) },
	}
}

// Streamed returns a Matcher for requests for a stream if stream is true, and for whole replies
// if it is false.
func Streamed(stream bool) Matcher {
	return Matcher{
		text:  fmt.Sprintf("Streamed(%t)", stream),
		match: func(r *Request) bool { return r.Stream == stream },
		got:   func(r *Request) string { return fmt.Sprintf("stream %t", r.Stream) },
	}
}

// HasHeader returns a Matcher for requests with a header. A * in the value stands for any text.
func HasHeader(name, value string) Matcher {
	pattern := wildcard(value)
	return Matcher{
		text:  fmt.Sprintf("HasHeader(%q, %q)", name, value),
		match: func(r *Request) bool { return pattern.MatchString(r.Header.Get(name)) },
		got:   func(r *Request) string { return fmt.Sprintf("header %q", r.Header.Get(name)) },
	}
}

// operationMatcher returns the Matcher of an operation other than chat. If the operation is one of this
// module, a function has its name.
func operationMatcher(op llmhttp.Operation) Matcher {
	text := fmt.Sprintf("Match(%q)", "operation "+op)
	if slices.Contains(llmhttp.Operations(), op) {
		var name strings.Builder
		for word := range strings.SplitSeq(string(op), "_") {
			name.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		text = name.String() + "()"
	}
	return Matcher{
		text:      text,
		match:     func(r *Request) bool { return r.Operation == op },
		got:       func(r *Request) string { return "operation " + string(r.Operation) },
		operation: op,
	}
}
