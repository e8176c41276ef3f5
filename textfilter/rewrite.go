// Rewrite and Kind: how the strings of an Extra, of JSON and of lists are rewritten.

package textfilter

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A Kind says what a text of a request or a reply is.
type Kind string

// The kinds of texts.
const (
	Content     Kind = "content"     // what is said: content, results of tools, prompts of images, inputs of embeddings and speech, queries and documents
	Reasoning   Kind = "reasoning"   // of a model, also in ReasoningDetails
	Refusal     Kind = "refusal"     // of a model
	Arguments   Kind = "arguments"   // of a call of a function: JSON with the escapes of the model, which may be invalid or not complete
	Name        Kind = "name"        // of a participant, a tool or a schema
	Description Kind = "description" // of a tool or a schema

	// Other is a string without a field of its own, such as one in a JSON schema, in an Extra
	// or in the input of a custom tool, the name of a member of these, a stop sequence, or the
	// address of an image. Some of them are no texts that a person or a model has written: a
	// function that changes texts in general leaves those alone that it does not look for.
	Other Kind = "other"
)

// rewrittenKinds has the Kinds of the texts that a walk visits. Those without one are not
// rewritten: roles, types, IDs, signatures and encrypted reasoning, which have to stay as they are.
var rewrittenKinds = [texts.NumKinds]Kind{
	texts.KindContent: Content, texts.KindRefusal: Refusal, texts.KindArguments: Arguments, texts.KindReasoning: Reasoning,
	texts.KindDetail: Reasoning, texts.KindName: Name, texts.KindDescription: Description, texts.KindMedia: Other,
}

// Rewrite replaces each text of a request by what f returns for it, and stops at the first error
// of f, which it returns: the request is then of no use. req is a pointer to one of the requests that
// Backends get, such as a [*llm.ChatRequest]; another value is an error.
//
// The texts of a chat are those of messages, of tools, of the response format, of stop sequences and
// of everything in an Extra or a JSON schema. Not among them are the model, roles, types, IDs,
// signatures, encrypted reasoning, and media in base64. Other requests are treated alike: the names
// of files are texts, and what they contain and the voices of speech are not. The list of the
// documents to rank is replaced, because that before may be needed for the reply. Token numbers are
// texts that f cannot see: a request that has any is refused with an [*llm.Error].
//
// Texts that a model reads as one are one text for f, so that f finds what is divided between them:
// consecutive parts of a message, and consecutive pieces of reasoning. They are joined if f changes
// them in a way that it does not change the pieces. So f is called more than once for them, and
// should return the same for the same text. In [Arguments], characters are not escaped unless
// JSON demands it. f must not make a text empty that must not be, such as the name of a function.
func Rewrite(req any, f func(kind Kind, text string) (string, error)) error {
	w := &rewriter{f: f}
	for _, rewrite := range requests {
		if rewrite(w, req) {
			return w.err
		}
	}
	return fmt.Errorf("textfilter: Rewrite of a %T, which is not a request", req)
}

// requests has a function for each type of request. It reports whether req is one, of which it has
// then rewritten the texts. textsOf adds them.
var requests []func(w *rewriter, req any) bool

// A walk rewrites each text of a request or a reply.
type walk[Q any] func(w *rewriter, req *Q)

// textsOf returns a walk over requests, which Rewrite then knows.
func textsOf[Q any](texts walk[Q]) walk[Q] {
	requests = append(requests, func(w *rewriter, req any) bool {
		r, ok := req.(*Q)
		if ok {
			texts(w, r)
		}
		return ok
	})
	return texts
}

// A rewriter rewrites texts by f. After an error it does nothing.
type rewriter struct {
	f   func(kind Kind, text string) (string, error)
	err error
}

// text rewrites a text. Empty texts and media are left alone.
func (w *rewriter) text(kind Kind, s *string) {
	if w.err != nil || *s == "" || kind == Other && isMedia(*s) {
		return
	}
	out, err := w.f(kind, *s)
	if err != nil {
		w.err = err
		return
	}
	*s = out
}

// list rewrites each text of a list.
func (w *rewriter) list(kind Kind, list []string) {
	for i := range list {
		w.text(kind, &list[i])
	}
}

// refuseTokens refuses token numbers in a parameter, because f cannot see their texts.
func (w *rewriter) refuseTokens(param string, tokens [][]int) {
	if len(tokens) > 0 {
		w.err = invalid.Param(
			"invalid_type",
			param,
			"Invalid type for '%s': expected texts. This server does not accept token numbers.",
			param,
		)
	}
}

// visit rewrites a text that a walk visits.
func (w *rewriter) visit(kind texts.Kind, s *string) {
	if k := rewrittenKinds[kind]; k != "" {
		w.text(k, s)
	}
}

// visitExtra rewrites an Extra that a walk visits.
func (w *rewriter) visitExtra(_ texts.Kind, e llm.Extra) { w.extra(e) }

// extra rewrites the members of an Extra, and their names.
func (w *rewriter) extra(e llm.Extra) {
	if w.err != nil || len(e) == 0 {
		return
	}
	renamed := make(llm.Extra)
	for name, raw := range e {
		to := name
		w.text(Other, &to)
		w.json(&raw)
		if to != name {
			delete(e, name)
			renamed[to] = raw
		} else {
			e[name] = raw
		}
	}
	maps.Copy(e, renamed)
}

// json rewrites the strings in a JSON text, which are values and names of members.
func (w *rewriter) json(raw *json.RawMessage) {
	if w.err != nil {
		return
	}
	var out []byte // nil if nothing has changed
	rest, copied := []byte(*raw), 0
	for i := 0; i < len(rest); {
		if rest[i] != '"' {
			i++
			continue
		}
		end := stringEnd(rest[i:])
		before := jsonwire.Text(json.RawMessage(rest[i : i+end]))
		after := before
		w.text(Other, &after)
		if after != before {
			out = append(out, rest[copied:i]...)
			out = jsonwire.AppendString(out, after)
			copied = i + end
		}
		i += end
	}
	if copied > 0 && w.err == nil {
		*raw = append(out, rest[copied:]...)
	}
}

// stringEnd returns the length of the JSON string with which b begins, or that of b if the string
// has no end.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// maxUncheckedBase64 is the length from which a string that has only the characters of base64 is
// taken for media. A text of that length has spaces.
const maxUncheckedBase64 = 4 << 10

// isMedia reports whether s is media in base64, in which there is no text to rewrite.
func isMedia(s string) bool {
	return tokens.IsBase64URL(s) || len(s) >= maxUncheckedBase64 && tokens.IsBase64(s)
}

// A runOf tells which elements of a list have texts that are read as one.
type runOf[E any] struct {
	text    func(e *E) *string
	extra   func(e *E) *llm.Extra
	follows func(e, next *E) bool // the text of next continues that of e
}

var partRun = runOf[llm.Part]{
	text:    func(p *llm.Part) *string { return &p.Text },
	extra:   func(p *llm.Part) *llm.Extra { return &p.Extra },
	follows: func(p, next *llm.Part) bool { return p.Type == llm.PartText && next.Type == llm.PartText },
}

var detailRun = runOf[llm.ReasoningDetail]{
	text:    func(d *llm.ReasoningDetail) *string { return &d.Text },
	extra:   func(d *llm.ReasoningDetail) *llm.Extra { return &d.Extra },
	follows: texts.Continues,
}

// joinRuns joins the elements of each run of texts that f changes as a whole in another way than one
// by one: then there is something that is divided between them. The joined element is the last of
// the run, which may have a signature, with the Extra of all.
func joinRuns[E any](w *rewriter, kind Kind, list []E, run runOf[E]) []E {
	out := list[:0:0]
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && run.follows(&list[end-1], &list[end]) {
			end++
		}
		if elements := list[i:end]; isDivided(w, kind, elements, run.text) {
			last := elements[len(elements)-1]
			var all strings.Builder
			var extra llm.Extra
			for j := range elements {
				all.WriteString(*run.text(&elements[j]))
				extra = jsonwire.MergeExtra(extra, *run.extra(&elements[j]))
			}
			*run.text(&last), *run.extra(&last) = all.String(), extra
			out = append(out, last)
		} else {
			out = append(out, elements...)
		}
		i = end
	}
	if len(out) == len(list) {
		return list // nil stays nil
	}
	for i := range out {
		delete(*run.extra(&out[i]), anthropic.Member) // an anthropic.Source counts parts
	}
	return out
}

// isDivided reports whether f changes the texts of elements as a whole in another way than one by
// one.
func isDivided[E any](w *rewriter, kind Kind, elements []E, text func(e *E) *string) bool {
	if len(elements) == 1 || w.err != nil {
		return false
	}
	var all, pieces strings.Builder
	for i := range elements {
		s := *text(&elements[i])
		all.WriteString(s)
		w.text(kind, &s)
		pieces.WriteString(s)
	}
	whole := all.String()
	w.text(kind, &whole)
	return whole != pieces.String()
}
