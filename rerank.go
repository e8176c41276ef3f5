package llmhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationRerank is the [Operation] of ordering documents by their relevance to a query.
const OperationRerank Operation = "rerank"

// ScopeRerank is the [Scope] of ordering documents by their relevance to a query.
const ScopeRerank Scope = "rerank"

const maxRerankDocuments = 10_000

// A Reranker is a [Backend] that orders documents by their relevance to a query.
type Reranker interface {
	// Rerank returns a score for each document of req, or for the TopN that are most relevant,
	// in any order. Clients compare scores with thresholds from 0 to 1, so a model whose scores
	// are logits needs a sigmoid function. The Reranker owns req.
	Rerank(ctx context.Context, req *RerankRequest) (*RerankResponse, error)
}

// A RerankRequest is the body of POST /v1/rerank, the union of the APIs of Jina and Cohere. A
// Handler checks requests before it passes them to a Backend: there are a query and 1 to
// 10,000 documents.
type RerankRequest struct {
	Model           string           `json:"model"`
	Query           string           `json:"query"`
	Documents       []RerankDocument `json:"documents"`
	TopN            int              `json:"top_n,omitzero"`            // how many results the client wants; zero means all
	ReturnDocuments bool             `json:"return_documents,omitzero"` // the Handler adds the documents to the reply
	Extra           llm.Extra        `json:"-"`
}

var rerankRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *RerankRequest) *string { return &r.Model }).Always(),
	jsonwire.String("query", func(r *RerankRequest) *string { return &r.Query }).Always(),
	jsonwire.Array("documents", func(r *RerankRequest) *[]RerankDocument { return &r.Documents }, rerankDocumentJSON, maxRerankDocuments).
		Always(),
	jsonwire.Int("top_n", func(r *RerankRequest) *int { return &r.TopN }).Between(0, math.MaxInt32),
	jsonwire.Bool("return_documents", func(r *RerankRequest) *bool { return &r.ReturnDocuments }),
	jsonwire.Extra(func(r *RerankRequest) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r RerankRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(rerankRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *RerankRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, rerankRequestJSON, r)
}

// Validate returns an *Error for the first parameter that the format does not allow.
// Functions that decode requests call it: see [BindRerank].
func (r *RerankRequest) Validate() error {
	switch {
	case r.Model == "":
		return invalid.Missing("model")
	case r.Query == "":
		return invalid.Missing("query")
	case r.Documents == nil:
		return invalid.Missing("documents")
	case len(r.Documents) == 0:
		return invalid.EmptyArray("documents")
	case len(r.Documents) > maxRerankDocuments:
		return invalid.LongArray("documents", maxRerankDocuments, len(r.Documents))
	}
	if err := rerankRequestJSON.Check(r); err != nil {
		return invalid.JSON(err)
	}
	return nil
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *RerankRequest) EndUser() string { return param.EndUser(r.Extra) }

// results returns how many results the client wants.
func (r *RerankRequest) results() int {
	return min(cmp.Or(max(r.TopN, 0), len(r.Documents)), len(r.Documents))
}

// searchUnits returns the units of r at Cohere, if its documents have at most 500 tokens each
// (https://cohere.com/pricing).
func (r *RerankRequest) searchUnits() int64 { return (int64(len(r.Documents)) + 99) / 100 }

// A RerankDocument is one of the documents of a [RerankRequest]. In JSON it is a string, or an
// object with a text, an image or other members that the model knows.
type RerankDocument struct {
	Text string          // of an object, its member "text" if that is a string
	Raw  json.RawMessage // the object; nil if the document is a string
}

// MarshalJSON encodes d as a request has it.
func (d RerankDocument) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(rerankDocumentJSON, &d)
}

// UnmarshalJSON decodes a document.
func (d *RerankDocument) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, rerankDocumentJSON, d)
}

// documentTextJSON reads the text of an object.
var documentTextJSON = jsonwire.NewObject(jsonwire.PlainString("text", func(d *RerankDocument) *string { return &d.Text }))

var rerankDocumentJSON, repliedDocumentJSON jsonwire.Type[RerankDocument] = rerankDocumentType{}, rerankDocumentType{ofReply: true}

// A rerankDocumentType is the Type of documents. Those of replies are always objects.
type rerankDocumentType struct{ ofReply bool }

func (rerankDocumentType) IsZero(d *RerankDocument) bool { return d.Text == "" && d.Raw == nil }

func (t rerankDocumentType) Append(b []byte, d *RerankDocument) ([]byte, error) {
	switch {
	case d.Raw != nil:
		return jsonwire.AppendRaw(b, d.Raw)
	case t.ofReply:
		return append(jsonwire.AppendString(append(b, `{"text":`...), d.Text), '}'), nil
	}
	return jsonwire.AppendString(b, d.Text), nil
}

func (rerankDocumentType) Decode(d *jsonwire.Decoder, doc *RerankDocument) {
	switch d.Kind() {
	case '"':
		doc.Text = d.String()
	case '{':
		doc.Raw = d.Raw()
		_ = jsonwire.UnmarshalLenient(doc.Raw, documentTextJSON, doc) // Raw is valid JSON, or d has failed
	default:
		d.Mismatch("one of a string or object")
	}
}

// A RerankResponse has the results of a [RerankRequest]. The Handler puts them into the order of
// their scores, cuts them to TopN, and adds the documents. It is decoded leniently: see [llm.ChatChunk].
type RerankResponse struct {
	ID      string         `json:"id"`             // if empty, the Handler makes one
	Model   string         `json:"model"`          // if empty, the request's
	Results []RerankResult `json:"results"`        // each has another Index
	Usage   *llm.Usage     `json:"usage,omitzero"` // without completion_tokens; nil if it is not known
	Extra   llm.Extra      `json:"-"`

	// SearchUnits is the number of units that Cohere charges for, which JSON has in "meta". Zero
	// or negative means one for each 100 documents.
	SearchUnits int64 `json:"-"`
}

// A RerankResult tells how relevant a document is.
type RerankResult struct {
	Index    int             `json:"index"`             // of the document in the request
	Score    float64         `json:"relevance_score"`   // from 0 to 1 if the model allows; more is better
	Document *RerankDocument `json:"document,omitzero"` // the Handler sets it if ReturnDocuments is set, and removes others
	Extra    llm.Extra       `json:"-"`
}

var rerankResultJSON = jsonwire.NewObject(
	jsonwire.Int("index", func(r *RerankResult) *int { return &r.Index }).Always(),
	jsonwire.Float("relevance_score", func(r *RerankResult) *float64 { return &r.Score }).Always(),
	jsonwire.Pointer("document", func(r *RerankResult) **RerankDocument { return &r.Document }, repliedDocumentJSON),
	jsonwire.Extra(func(r *RerankResult) *llm.Extra { return &r.Extra }),
).InitElement(func(r *RerankResult, _ int) { r.Index, r.Score = -1, math.NaN() }) // which CheckReply refuses

// MarshalJSON encodes r.
func (r RerankResult) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(rerankResultJSON, &r)
}

// UnmarshalJSON decodes a result leniently.
func (r *RerankResult) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, rerankResultJSON, r)
}

// The members "usage" and "meta" tell the same to clients of Jina and of Cohere.
var rerankResponseJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(r *RerankResponse) *string { return &r.ID }).Always(),
	jsonwire.Constant[RerankResponse]("object", membername.ObjectList),
	jsonwire.String("model", func(r *RerankResponse) *string { return &r.Model }).Always(),
	jsonwire.List("results", func(r *RerankResponse) *[]RerankResult { return &r.Results }, rerankResultJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *RerankResponse) **llm.Usage { return &r.Usage }, usageJSON).
		AppendWith(func(r *RerankResponse, b []byte) ([]byte, error) { return embeddingUsageJSON.Append(b, r.Usage) }),
	jsonwire.Func("meta", (*RerankResponse).decodeMeta, (*RerankResponse).appendMeta),
	jsonwire.Extra(func(r *RerankResponse) *llm.Extra { return &r.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(r *RerankResponse) { r.Usage = nilIfZero(r.Usage) })

// MarshalJSON encodes r.
func (r RerankResponse) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(rerankResponseJSON, &r)
}

// UnmarshalJSON decodes a response leniently.
func (r *RerankResponse) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, rerankResponseJSON, r)
}

// decodeMeta reads what Cohere tells of the usage. It ignores what it does not understand.
func (r *RerankResponse) decodeMeta(d *jsonwire.Decoder) {
	var meta struct {
		Billed map[string]float64 `json:"billed_units"`
		Tokens map[string]float64
	}
	if json.Unmarshal(d.Raw(), &meta) != nil {
		return
	}
	r.SearchUnits = int64(min(meta.Billed["search_units"], jsonwire.MaxInteger))
	if n := int(min(meta.Tokens["input_tokens"], jsonwire.MaxInteger)); nilIfZero(r.Usage) == nil {
		r.Usage = &llm.Usage{PromptTokens: n}
	}
}

func (r *RerankResponse) appendMeta(b []byte) ([]byte, error) {
	return fmt.Appendf(b, `{"api_version":{"version":"2"},"billed_units":{"search_units":%d},"tokens":{"input_tokens":%d}}`,
		max(r.SearchUnits, 0), cmp.Or(r.Usage, new(llm.Usage)).Total()), nil
}

// CheckReply returns an error that tells why resp, which may be nil, is no reply to r.
func (r *RerankRequest) CheckReply(resp *RerankResponse) error {
	if resp == nil || len(resp.Results) < r.results() {
		return fmt.Errorf("llmhttp: there are too few results, want at least %d", r.results())
	}
	seen := make([]bool, len(r.Documents))
	for _, result := range resp.Results {
		i, score := result.Index, result.Score
		if i < 0 || i >= len(seen) || seen[i] || math.IsNaN(score) || math.IsInf(score, 0) {
			return fmt.Errorf(
				"llmhttp: a result has the index %d and the score %v, want each of %d documents once and finite scores",
				i,
				score,
				len(seen),
			)
		}
		seen[i] = true
	}
	return nil
}

var rerankOperation = operation{name: OperationRerank, scope: ScopeRerank, supportedBy: Has[Reranker], output: OutputNone}

// rank puts the results into order, cuts them, and adds the documents of the request.
func (r *RerankResponse) rank(asked *RerankRequest) {
	r.Results = slices.Clone(r.Results)
	slices.SortStableFunc(r.Results, func(a, b RerankResult) int { return cmp.Compare(b.Score, a.Score) })
	r.Results = r.Results[:asked.results()]
	for i := range r.Results {
		if r.Results[i].Document = nil; asked.ReturnDocuments {
			r.Results[i].Document = &asked.Documents[r.Results[i].Index]
		}
	}
}

func (r *RerankResponse) size() int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Results {
		n += texts.ElementSize + jsonwire.ExtraSize(r.Results[i].Extra)
	}
	return n
}

// countRerank counts the tokens of a rerank request. A model reads the query once with each document.
func countRerank(c tokens.Estimator, r *RerankRequest) int {
	n := c.Label(r.Model) + c.Extra(r.Extra) + max(len(r.Documents), 1)*c.Text(r.Query)
	for i := range r.Documents {
		if d := &r.Documents[i]; d.Raw != nil {
			n += c.Members(texts.KindMedia, llm.Extra{"": d.Raw})
		} else {
			n += c.Text(d.Text)
		}
	}
	return n
}

// decodeRerank decodes POST /v1/rerank.
func decodeRerank(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*RerankRequest, func(b []byte, r *RerankResponse) ([]byte, error), error) {
	req := new(RerankRequest)
	return req, rerankResponseJSON.Append, decodeChecked(ctx, body, rerankRequestJSON, req, &req.Extra)
}

// BindRerank binds a route to the ordering of documents, with [ScopeRerank]. decode checks the
// request by [RerankRequest.Validate]. The reply that encode gets is complete, and its results
// are in order. If the Backend is no [Reranker], the client gets a 404. See "Protocols" in the
// package documentation.
func BindRerank(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *RerankRequest, encode func(b []byte, reply *RerankResponse) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return rerankOperation.bindCall(func(c *Call) error {
		req, encode, err := decodeBody(c.q, decode)
		if err != nil {
			return err
		}
		return serveRerank(c, req, encode)
	})
}

func serveRerank(c *Call, req *RerankRequest, encode func(b []byte, reply *RerankResponse) ([]byte, error)) error {
	units := req.searchUnits()
	err := c.Reserve(Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return countRerank(c.q.tokenEstimator(), req) }, Units: &Units{SearchUnits: units},
		Params: RequestParams{Messages: len(req.Documents)},
	})
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req, and its documents
	req.Documents = slices.Clone(req.Documents)
	var reply RerankResponse
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		resp, err := callAbility(ctx, b, Reranker.Rerank, req)
		if err != nil {
			return Used{}, err
		}
		if resp == nil {
			return Used{}, asked.CheckReply(nil)
		}
		reply = *resp // which belongs to the Backend
		if reply.SearchUnits <= 0 {
			reply.SearchUnits = units
		}
		return Used{
			Usage: reply.Usage, Units: &Units{SearchUnits: reply.SearchUnits}, Model: reply.Model, Size: reply.size(),
		}, asked.CheckReply(resp)
	})
	if err != nil {
		return err
	}
	reply.rank(&asked)
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) {
		reply.Usage, reply.Model, reply.ID = new(c.Usage()), cmp.Or(reply.Model, asked.Model), cmp.Or(reply.ID, randomid.New("rerank-"))
		return encode(b, &reply)
	})
}
