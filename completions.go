// OpenAI's API as a Protocol: chat completions. Texts and their usage are encoded without the tables
// of jsonwire, which is faster; tests compare both for every field.

package llmhttp

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// ChatCompletions returns the [Protocol] of POST /v1/chat/completions and the other paths
// that a Handler always serves. A Protocol for another API of OpenAI can embed it for
// its Secret, SetHeaders and AppendError. See "Protocols" in the package documentation.
func ChatCompletions() Protocol { return chatCompletions{} }

// chatCompletions is the [Protocol] of the paths that a Handler always serves.
type chatCompletions struct{}

func (chatCompletions) Name() string { return "chat" }

func (chatCompletions) Secret(r *http.Request) string { return BearerSecret(r) }

// Routes returns the routes of all operations of OpenAI's API.
func (chatCompletions) Routes() []Route {
	usage, subscription := usageOperation.bindCall(serveUsage), usageOperation.bindCall(serveSubscription)
	return []Route{
		{Pattern: "POST /v1/chat/completions", Bind: BindChat(decodeCompletion)},
		{Pattern: "POST /v1/images/generations", Bind: BindImages(decodeImages, newImageEvents)},
		{Pattern: "POST /v1/embeddings", Bind: BindEmbeddings(decodeEmbeddings)},
		{Pattern: "GET /v1/models", Bind: BindModels(decodeListModels)},
		{Pattern: "GET /v1/models/{id...}", Bind: BindModels(decodeGetModel)},
		{Pattern: "GET /v1/dashboard/billing/usage", Bind: usage},
		{Pattern: "GET /dashboard/billing/usage", Bind: usage},
		{Pattern: "GET /v1/dashboard/billing/subscription", Bind: subscription},
		{Pattern: "GET /dashboard/billing/subscription", Bind: subscription},
	}
}

// decodeCompletion decodes POST /v1/chat/completions.
func decodeCompletion(ctx context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, ChatEncoder, error) {
	req := new(llm.ChatRequest)
	if err := decodeChecked(ctx, body, chatRequestJSON, req, &req.Extra); err != nil {
		return nil, nil, err
	}
	if !req.Stream {
		return req, new(wholeCompletion), nil
	}
	// The encoder must not refer to req, so that req can be garbage-collected while the
	// stream runs.
	showUsage := req.StreamOptions != nil && req.StreamOptions.IncludeUsage
	return req, &completionEncoder{openai.Stream{ShowUsage: showUsage}}, nil
}

// decodeChecked decodes a request of OpenAI's API into req, which is zero, and checks it. extra
// points to the members without a field.
func decodeChecked[T any, P interface {
	*T
	Validate() error
}](ctx context.Context, body []byte, table jsonwire.Type[T], req P, extra *llm.Extra) error {
	if err := decodeRequest(body, table, (*T)(req)); err != nil {
		return err
	}
	if err := checkUnknownMembers(ctx, *extra); err != nil {
		return err
	}
	return req.Validate()
}

const (
	headerRequestID  = headertext.RequestID
	headerProcessing = headertext.Processing
)

// SetHeaders sets headers whose values share one string and one slice (budget:
// allocations of a whole request).
func (chatCompletions) SetHeaders(h http.Header, info ReplyInfo) {
	names := append(make([]string, 0, 8), headerRequestID, headerProcessing)
	numbers := strconv.AppendInt(make([]byte, 0, 128), info.Processing.Milliseconds(), 10)
	if info.Requests != nil {
		names = append(names, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests")
		numbers = info.Requests.appendFields(numbers)
	}
	if info.Tokens != nil {
		names = append(names, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens")
		numbers = info.Tokens.appendFields(numbers)
	}
	values := append(make([]string, 0, len(names)), info.RequestID)
	values = slices.AppendSeq(values, strings.FieldsSeq(string(numbers)))
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}

// appendFields appends the values of the headers of one limit, with a space before each.
func (l *LimitInfo) appendFields(b []byte) []byte {
	b = strconv.AppendInt(append(b, ' '), l.Limit, 10)
	b = strconv.AppendInt(append(b, ' '), l.Remaining, 10)
	return append(append(b, ' '), formatReset(l.ResetAfter)...)
}

// AppendError appends the error object of the API.
func (chatCompletions) AppendError(b []byte, e *llm.Error, _ string) (body []byte, status int) {
	return openai.AppendError(b, e), e.Status
}

// headOf returns what begins a reply of chat completions, or a chunk of it.
func headOf(s *ReplyStart, object string) openai.Head {
	return openai.Head{ID: s.ID, Prefix: "chatcmpl-", Object: object, Created: s.Created, Model: s.Model}
}

// A wholeCompletion encodes one whole reply of chat completions.
type wholeCompletion struct {
	start  ReplyStart
	joined join.Accumulator
}

func (*wholeCompletion) Framing() Framing {
	return Framing{Whole: true, ContentType: contentTypeJSON}
}

func (e *wholeCompletion) AppendStart(b []byte, s *ReplyStart) []byte {
	e.start = *s
	return b
}

func (e *wholeCompletion) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	e.joined.Add(c)
	return b, nil
}

func (e *wholeCompletion) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	r := e.joined.Response()
	r.ID, r.Created, r.Model = headOf(&e.start, "").CompletionID(), e.start.Created, e.start.Model
	r.Usage, r.Extra = u, jsonwire.MergeExtra(r.Extra, extra)
	return appendCompletion(b, r)
}

// AppendFailure is not called for a whole reply.
func (*wholeCompletion) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// appendCompletion appends a chat.completion object. It may change r.
func appendCompletion(b []byte, r *llm.ChatResponse) ([]byte, error) {
	for i := range r.Choices {
		m := &r.Choices[i].Message
		withBothNames(m.Reasoning, &m.ReasoningAlias, &m.Extra)
	}
	return chatResponseJSON.Append(b, r)
}

// withBothNames makes reasoning under membername.ReasoningAlias have both names: clients know one or
// the other.
func withBothNames(text string, alias *bool, extra *llm.Extra) {
	if *alias && text != "" {
		*extra = jsonwire.MergeExtra(*extra, llm.Extra{membername.ReasoningAlias: jsonwire.AppendString(nil, text)})
	}
	*alias = false
}

// The JSON of the types of package llm.
var (
	chatRequestJSON      = jsonwire.ObjectOf[llm.ChatRequest]("")
	chatChunkJSON        = jsonwire.ObjectOf[llm.ChatChunk]("")
	chatResponseJSON     = jsonwire.ObjectOf[llm.ChatResponse]("")
	chunkChoiceJSON      = jsonwire.ObjectOf[llm.ChunkChoice]("")
	deltaJSON            = jsonwire.ObjectOf[llm.Delta]("")
	embeddingRequestJSON = jsonwire.ObjectOf[llm.EmbeddingRequest]("")
	imageRequestJSON     = jsonwire.ObjectOf[llm.ImageRequest]("")
	imageResponseJSON    = jsonwire.ObjectOf[llm.ImageResponse]("")
)
