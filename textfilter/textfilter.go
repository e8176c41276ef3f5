// Package textfilter rewrites or refuses the texts of requests and replies, for redaction and
// guardrails: in each operation, in each format, whole or streamed, also where a stream divides what is
// looked for.
//
//	filtered := textfilter.New(backend, func(ctx context.Context) textfilter.Filter {
//		return textfilter.Filter{Request: hide, Reply: restore}
//	})
//
// [New] puts a [Filter] around a Backend. [Rewrite] and [Stream] are for programs that filter only one
// request, or one stream.
//
// Text in an image, a recording or a file in base64 passes, and so do IDs, types, roles, signatures,
// encrypted reasoning, and numbers in an Extra. Each string in an array of an Extra is a text of its own,
// because arrays of chunks are appended to each other and not their elements. A thinking block that a
// filter changes keeps the signature of the original: its model refuses it in the next request, unless
// the filter of requests makes the original of it again. A choice that a filter refuses has an
// estimated usage if the Backend reports none when its stream is not read to its end.
package textfilter

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// ErrContentFiltered is what the functions of a [Filter] return, or wrap, to refuse a text. In a reply,
// the choice of the text then ends with FinishContentFilter; what was held back of it is dropped. A
// request is refused with a 400 that has the code content_filter.
var ErrContentFiltered = errors.New("textfilter: a text was refused by a content filter")

// A Filter rewrites or refuses the texts of one request and of its reply: see [New]. A nil function
// leaves its texts as they are. The examples redaction, which replaces strings, and guardrail have such
// functions.
type Filter struct {
	// Request is called for each text of the request: see [Rewrite].
	Request func(kind Kind, text string) (string, error)

	// Reply is called for each text of the reply: see [Stream]. Texts that come whole, such as the
	// revised prompt of an image, are passed to it once, with End set.
	Reply func(t *ReplyText) (release, hold string, err error)
}

// New returns a Backend that passes all texts between clients and b through a filter. newFilter is
// called for each request, so that the filter can have the state of that, such as what it has
// replaced, or depend on the key: see [llmhttp.KeyFrom]. It must be safe for concurrent use; the
// functions of a Filter are called one after the other.
//
// The texts are those of chats, of completions of prompts, of prompts whose tokens are counted, of
// embeddings, images, speech, transcriptions, rerank and moderations. What New does not know does not
// pass: if b has a method of which this package knows nothing, the Backend that New returns does not
// have it. Inputs of embeddings, and prompts, that are token numbers get a 400 if there is a function
// for requests.
//
// A function for replies gets the text of a transcription when it is complete, so clients get a
// stream in one piece. Until then, a chunk without text is passed on for each chunk of b, so that
// timeouts see that it goes on. At most 64 MiB are collected; more is an error. If the function
// changes the text, the reply has no segments, words and log probabilities; then a client that wants
// subtitles gets a 400. Audio is not filtered.
//
// An error of Request is that of the request, and nothing of it reaches b. It is recorded without
// usage. If it wraps [ErrContentFiltered], the client gets a 400 with the code content_filter. The
// same error of Reply ends a choice with FinishContentFilter, and refuses a reply that is not a
// chat as if the request had been refused, except for its usage.
//
// New panics if b or newFilter is nil.
func New(b llmhttp.Backend, newFilter func(ctx context.Context) Filter) llmhttp.Backend {
	if option.IsNil(b) || newFilter == nil {
		panic("textfilter: New with a nil Backend or function")
	}
	return &backend{b, newFilter}
}

// A backend is what New returns. It does not embed the Backend and has no Unwrap, so what it does not
// filter is hidden. Each of its methods is in the file of its operation, beside the texts of that.
// TestAbilities fails if a method is missing.
type backend struct {
	next      llmhttp.Backend
	newFilter func(ctx context.Context) Filter
}

// maxHeld is how many bytes of a reply a filter may hold back. The Handler does not see them: its
// Options.Bounds.MaxReply bounds what it gets.
const maxHeld = 64 << 20

// errFiltered returns the error of a request of which a text was refused with err.
func errFiltered(err error) error {
	if _, ok := errors.AsType[*llm.Error](err); ok || !errors.Is(err, ErrContentFiltered) {
		return err
	}
	e := llm.Errorf(http.StatusBadRequest, "content_filter", "The request was refused by a content filter.")
	e.Err, e.NoRetry = err, true
	return e
}

// filterRequest rewrites the texts of a request.
func filterRequest[Q any](f *Filter, texts walk[Q], req *Q) error {
	if f.Request == nil {
		return nil
	}
	w := &rewriter{f: f.Request}
	if texts(w, req); w.err != nil {
		return errors.Join(errFiltered(w.err), llm.ErrNotSent)
	}
	return nil
}

// rewriter returns a rewriter for texts of a reply that come whole.
func (f *Filter) rewriter() *rewriter {
	return &rewriter{f: func(kind Kind, s string) (string, error) {
		release, hold, err := f.Reply(&ReplyText{Kind: kind, Call: -1, Text: s, End: true})
		return release + hold, err
	}}
}

// filterReply filters a request, passes it to call, and rewrites the texts of a copy of the reply,
// which belongs to b.next. replyTexts clones what it changes.
func filterReply[Q, R any](
	ctx context.Context,
	b *backend,
	texts walk[Q],
	call func(context.Context, llmhttp.Backend, *Q) (*R, error),
	req *Q,
	replyTexts walk[R],
) (*R, error) {
	filter := b.newFilter(ctx)
	if err := filterRequest(&filter, texts, req); err != nil {
		return nil, err
	}
	resp, err := call(ctx, b.next, req)
	if filter.Reply == nil || err != nil || resp == nil {
		return resp, err
	}
	out, w := *resp, filter.rewriter()
	replyTexts(w, &out)
	return &out, errFiltered(w.err)
}

// filterStream filters a request and passes it to call. forward filters the stream of the reply; if
// it is nil, or if replies are not filtered, that is passed on.
func filterStream[Q, C any](
	ctx context.Context,
	b *backend,
	texts walk[Q],
	call func(context.Context, llmhttp.Backend, *Q) iter.Seq2[*C, error],
	req *Q,
	forward func(f *Filter, s iter.Seq2[*C, error], yield func(*C, error) bool),
) iter.Seq2[*C, error] {
	return func(yield func(*C, error) bool) {
		filter := b.newFilter(ctx)
		if err := filterRequest(&filter, texts, req); err != nil {
			yield(nil, err)
			return
		}
		stream := call(ctx, b.next, req)
		switch {
		case stream == nil:
			yield(nil, callctx.ErrNilStream)
		case filter.Reply == nil || forward == nil:
			stream(yield)
		default:
			forward(&filter, stream, yield)
		}
	}
}

// cloneExtra replaces e by a copy, and returns that.
func cloneExtra(e *llm.Extra) llm.Extra {
	*e = maps.Clone(*e)
	return *e
}
