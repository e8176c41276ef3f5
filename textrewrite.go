package llmhttp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A TextKind says what a text of a request or a reply is.
type TextKind string

// The kinds of texts.
const (
	TextContent     TextKind = "content"     // what is said: content, results of tools, prompts of images, inputs of embeddings and speech, queries and documents
	TextReasoning   TextKind = "reasoning"   // of a model, also in ReasoningDetails
	TextRefusal     TextKind = "refusal"     // of a model
	TextArguments   TextKind = "arguments"   // of a call of a function: JSON with the escapes of the model, which may be invalid or not complete
	TextName        TextKind = "name"        // of a participant, a tool or a schema
	TextDescription TextKind = "description" // of a tool or a schema

	// TextOther is a string without a field of its own, such as one in a JSON schema, in an Extra
	// or in the input of a custom tool, the name of a member of these, a stop sequence, or the
	// address of an image. Some of them are no texts that a person or a model has written: a
	// function that changes texts in general leaves those alone that it does not look for.
	TextOther TextKind = "other"
)

// rewrittenKinds has the TextKinds of the texts that a walk visits. Those without one are not
// rewritten: roles, types, IDs, signatures and encrypted reasoning, which have to stay as they are.
var rewrittenKinds = [texts.NumKinds]TextKind{
	texts.KindContent: TextContent, texts.KindRefusal: TextRefusal, texts.KindArguments: TextArguments, texts.KindReasoning: TextReasoning,
	texts.KindDetail: TextReasoning, texts.KindName: TextName, texts.KindDescription: TextDescription, texts.KindMedia: TextOther,
}

// RewriteTexts replaces each text of a request by what f returns for it, and stops at the first error
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
// should return the same for the same text. In [TextArguments], characters are not escaped unless
// JSON demands it. f must not make a text empty that must not be, such as the name of a function.
func RewriteTexts(req any, f func(kind TextKind, text string) (string, error)) error {
	w := &textRewriter{f: f}
	switch r := req.(type) {
	case *llm.ChatRequest:
		w.chatRequest(r)
	case *CompletionRequest:
		w.completionRequest(r)
	case *llm.EmbeddingRequest:
		w.embeddingRequest(r)
	case *llm.ImageRequest:
		w.imageRequest(r)
	case *SpeechRequest:
		w.speechRequest(r)
	case *RerankRequest:
		w.rerankRequest(r)
	case *ModerationRequest:
		w.moderationRequest(r)
	case *TranscriptionRequest:
		w.transcriptionRequest(r)
	default:
		return fmt.Errorf("llmhttp: RewriteTexts of a %T, which is not a request", req)
	}
	return w.err
}

func (w *textRewriter) chatRequest(r *llm.ChatRequest) {
	for i := range r.Messages {
		w.message(&r.Messages[i])
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		texts.WalkTool(t, w.text, w.extra)
		if t.Function != nil {
			w.json(&t.Function.Parameters)
		}
	}
	for i := range r.Stop {
		w.rewrite(TextOther, &r.Stop[i])
	}
	w.toolChoice(r.ToolChoice)
	if format := r.ResponseFormat; format != nil {
		w.extra(texts.KindWhole, format.Extra)
		if s := format.JSONSchema; s != nil {
			w.rewrite(TextName, &s.Name)
			w.rewrite(TextDescription, &s.Description)
			w.json(&s.Schema)
			w.extra(texts.KindWhole, s.Extra)
		}
	}
	if r.StreamOptions != nil {
		w.extra(texts.KindWhole, r.StreamOptions.Extra)
	}
	w.extra(texts.KindWhole, r.Extra)
}

func (w *textRewriter) completionRequest(r *CompletionRequest) {
	if len(r.Prompt.Tokens) > 0 {
		w.err = errTokenNumbers("prompt")
		return
	}
	for i := range r.Prompt.Texts {
		w.rewrite(TextContent, &r.Prompt.Texts[i])
	}
	w.rewrite(TextContent, &r.Suffix)
	for i := range r.Stop {
		w.rewrite(TextOther, &r.Stop[i])
	}
	if r.StreamOptions != nil {
		w.extra(texts.KindWhole, r.StreamOptions.Extra)
	}
	w.extra(texts.KindWhole, r.Extra)
}

// errTokenNumbers returns the error for a parameter whose texts a filter cannot see.
func errTokenNumbers(param string) *llm.Error {
	return invalid.Param(
		"invalid_type",
		param,
		"Invalid type for '%s': expected texts. This server does not accept token numbers.",
		param,
	)
}

func (w *textRewriter) embeddingRequest(r *llm.EmbeddingRequest) {
	if len(r.Input.Tokens) > 0 {
		w.err = errTokenNumbers("input")
		return
	}
	for i := range r.Input.Texts {
		w.rewrite(TextContent, &r.Input.Texts[i])
	}
	w.extra(texts.KindWhole, r.Extra)
}

// What is to be seen on images is not rewritten.
func (w *textRewriter) imageRequest(r *llm.ImageRequest) {
	w.rewrite(TextContent, &r.Prompt)
	for _, file := range r.Files() {
		w.rewrite(TextOther, &file.Name)
	}
	w.extra(texts.KindWhole, r.Extra)
}

func (w *textRewriter) speechRequest(r *SpeechRequest) {
	w.rewrite(TextContent, &r.Input)
	w.rewrite(TextContent, &r.Instructions)
	w.extra(texts.KindWhole, r.Voice.Extra)
	w.extra(texts.KindWhole, r.Extra)
}

// rerankRequest replaces the list of documents too: the one before may be needed for the reply.
func (w *textRewriter) rerankRequest(r *RerankRequest) {
	w.rewrite(TextContent, &r.Query)
	r.Documents = slices.Clone(r.Documents)
	for i := range r.Documents {
		w.rewrite(TextContent, &r.Documents[i].Text)
		w.json(&r.Documents[i].Raw)
	}
	w.extra(texts.KindWhole, r.Extra)
}

func (w *textRewriter) moderationRequest(r *ModerationRequest) {
	for i := range r.Input.Texts {
		w.rewrite(TextContent, &r.Input.Texts[i])
	}
	r.Input.Parts = joinRuns(w, TextContent, r.Input.Parts, partRun)
	for i := range r.Input.Parts {
		texts.WalkPart(&r.Input.Parts[i], w.text, w.extra)
	}
	w.extra(texts.KindWhole, r.Extra)
}

// What is spoken is not rewritten.
func (w *textRewriter) transcriptionRequest(r *TranscriptionRequest) {
	w.rewrite(TextContent, &r.Prompt)
	if r.File != nil {
		w.rewrite(TextOther, &r.File.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		for i := range r.Extra[name] {
			w.rewrite(TextOther, &r.Extra[name][i])
		}
	}
}

// A textRewriter rewrites texts by f. After an error it does nothing.
type textRewriter struct {
	f   func(kind TextKind, text string) (string, error)
	err error
}

// rewrite rewrites a text. Empty texts and media are left alone.
func (w *textRewriter) rewrite(kind TextKind, s *string) {
	if w.err != nil || *s == "" || kind == TextOther && isMedia(*s) {
		return
	}
	out, err := w.f(kind, *s)
	if err != nil {
		w.err = err
		return
	}
	*s = out
}

// text rewrites a text that a walk visits.
func (w *textRewriter) text(kind texts.Kind, s *string) {
	if k := rewrittenKinds[kind]; k != "" {
		w.rewrite(k, s)
	}
}

// extra rewrites the members of an Extra, and their names.
func (w *textRewriter) extra(_ texts.Kind, e llm.Extra) {
	if w.err != nil || len(e) == 0 {
		return
	}
	renamed := make(llm.Extra)
	for name, raw := range e {
		to := name
		w.rewrite(TextOther, &to)
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
func (w *textRewriter) json(raw *json.RawMessage) {
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
		w.rewrite(TextOther, &after)
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

// message rewrites the texts of m.
func (w *textRewriter) message(m *llm.Message) {
	m.Content = joinRuns(w, TextContent, m.Content, partRun)
	m.ReasoningDetails = joinRuns(w, TextReasoning, m.ReasoningDetails, detailRun)
	texts.WalkMessage(m, w.text, w.extra)
}

func (w *textRewriter) toolChoice(c *llm.ToolChoice) {
	if c == nil {
		return
	}
	w.extra(texts.KindWhole, c.Extra)
	w.namedTool(c.Function)
	w.namedTool(c.Custom)
	if a := c.AllowedTools; a != nil {
		w.extra(texts.KindWhole, a.Extra)
		for i := range a.Tools {
			w.extra(texts.KindWhole, a.Tools[i].Extra)
			w.namedTool(a.Tools[i].Function)
			w.namedTool(a.Tools[i].Custom)
		}
	}
}

func (w *textRewriter) namedTool(t *llm.NamedTool) {
	if t != nil {
		w.rewrite(TextName, &t.Name)
		w.extra(texts.KindWhole, t.Extra)
	}
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
func joinRuns[E any](w *textRewriter, kind TextKind, list []E, run runOf[E]) []E {
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
	return out
}

// isDivided reports whether f changes the texts of elements as a whole in another way than one by
// one.
func isDivided[E any](w *textRewriter, kind TextKind, elements []E, text func(e *E) *string) bool {
	if len(elements) == 1 || w.err != nil {
		return false
	}
	var all, pieces strings.Builder
	for i := range elements {
		s := *text(&elements[i])
		all.WriteString(s)
		w.rewrite(kind, &s)
		pieces.WriteString(s)
	}
	whole := all.String()
	w.rewrite(kind, &whole)
	return whole != pieces.String()
}
