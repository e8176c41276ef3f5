package rerank

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

const maxDocuments = 10_000

// A Request is the body of POST /v1/rerank, the union of the APIs of Jina and Cohere. A
// Handler checks requests before it passes them to a Backend: there are a query and 1 to
// 10,000 documents.
type Request struct {
	Model           string     `json:"model"`
	Query           string     `json:"query"`
	Documents       []Document `json:"documents"`
	TopN            int        `json:"top_n,omitzero"`            // how many results the client wants; zero means all
	ReturnDocuments bool       `json:"return_documents,omitzero"` // the Handler adds the documents to the reply
	Extra           llm.Extra  `json:"-"`
}

var requestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *Request) *string { return &r.Model }).Always(),
	jsonwire.String("query", func(r *Request) *string { return &r.Query }).Always(),
	jsonwire.Array("documents", func(r *Request) *[]Document { return &r.Documents }, documentJSON, maxDocuments).
		Always(),
	jsonwire.Int("top_n", func(r *Request) *int { return &r.TopN }).Between(0, math.MaxInt32),
	jsonwire.Bool("return_documents", func(r *Request) *bool { return &r.ReturnDocuments }),
	jsonwire.Extra(func(r *Request) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r Request) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(requestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *Request) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, requestJSON, r)
}

// Validate returns an [*llm.Error] for the first parameter that the format does not allow.
// Functions that decode requests call it: see [Serve].
func (r *Request) Validate() error {
	switch {
	case r.Model == "":
		return invalid.Missing("model")
	case r.Query == "":
		return invalid.Missing("query")
	case r.Documents == nil:
		return invalid.Missing("documents")
	case len(r.Documents) == 0:
		return invalid.EmptyArray("documents")
	case len(r.Documents) > maxDocuments:
		return invalid.LongArray("documents", maxDocuments, len(r.Documents))
	}
	if err := requestJSON.Check(r); err != nil {
		return invalid.JSON(err)
	}
	return nil
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *Request) EndUser() string { return param.EndUser(r.Extra) }

// results returns how many results the client wants.
func (r *Request) results() int {
	return min(cmp.Or(max(r.TopN, 0), len(r.Documents)), len(r.Documents))
}

// searchUnits returns the units of r at Cohere, if its documents have at most 500 tokens each
// (https://cohere.com/pricing).
func (r *Request) searchUnits() int64 { return (int64(len(r.Documents)) + 99) / 100 }

// A Document is one of the documents of a [Request]. In JSON it is a string, or an
// object with a text, an image or other members that the model knows.
type Document struct {
	Text string          // of an object, its member "text" if that is a string
	Raw  json.RawMessage // the object; nil if the document is a string
}

// MarshalJSON encodes d as a request has it.
func (d Document) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(documentJSON, &d)
}

// UnmarshalJSON decodes a document.
func (d *Document) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, documentJSON, d)
}

// documentTextJSON reads the text of an object.
var documentTextJSON = jsonwire.NewObject(jsonwire.PlainString("text", func(d *Document) *string { return &d.Text }))

var documentJSON, repliedDocumentJSON jsonwire.Type[Document] = documentType{}, documentType{ofReply: true}

// A documentType is the Type of documents. Those of replies are always objects.
type documentType struct{ ofReply bool }

func (documentType) IsZero(d *Document) bool { return d.Text == "" && d.Raw == nil }

func (t documentType) Append(b []byte, d *Document) ([]byte, error) {
	switch {
	case d.Raw != nil:
		return jsonwire.AppendRaw(b, d.Raw)
	case t.ofReply:
		return append(jsonwire.AppendString(append(b, `{"text":`...), d.Text), '}'), nil
	}
	return jsonwire.AppendString(b, d.Text), nil
}

func (documentType) Decode(d *jsonwire.Decoder, doc *Document) {
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

// A Response has the results of a [Request]. The Handler puts them into the order of
// their scores, cuts them to TopN, and adds the documents. It is decoded leniently: see [llm.ChatChunk].
type Response struct {
	ID      string     `json:"id"`             // if empty, the Handler makes one
	Model   string     `json:"model"`          // if empty, the request's
	Results []Result   `json:"results"`        // each has another Index
	Usage   *llm.Usage `json:"usage,omitzero"` // without completion_tokens; nil if it is not known
	Extra   llm.Extra  `json:"-"`

	// SearchUnits is the number of units that Cohere charges for, which JSON has in "meta". Zero
	// or negative means one for each 100 documents.
	SearchUnits int64 `json:"-"`
}

// A Result tells how relevant a document is.
type Result struct {
	Index    int       `json:"index"`             // of the document in the request
	Score    float64   `json:"relevance_score"`   // from 0 to 1 if the model allows; more is better
	Document *Document `json:"document,omitzero"` // the Handler sets it if ReturnDocuments is set, and removes others
	Extra    llm.Extra `json:"-"`
}

var resultJSON = jsonwire.NewObject(
	jsonwire.Int("index", func(r *Result) *int { return &r.Index }).Always(),
	jsonwire.Float("relevance_score", func(r *Result) *float64 { return &r.Score }).Always().AppendWith((*Result).appendScore),
	jsonwire.Pointer("document", func(r *Result) **Document { return &r.Document }, repliedDocumentJSON),
	jsonwire.Extra(func(r *Result) *llm.Extra { return &r.Extra }),
).InitElement(func(r *Result, _ int) { r.Index, r.Score = -1, math.NaN() }) // which CheckReply refuses

// appendScore appends the score, or null if there is none.
func (r *Result) appendScore(b []byte) ([]byte, error) {
	if math.IsNaN(r.Score) {
		return append(b, "null"...), nil
	}
	return jsonwire.AppendFloat(b, r.Score, 64)
}

// MarshalJSON encodes r.
func (r Result) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(resultJSON, &r)
}

// UnmarshalJSON decodes a result leniently.
func (r *Result) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, resultJSON, r)
}

// appendedUsageJSON is that of a usage without completion tokens.
var appendedUsageJSON = jsonwire.ObjectOf[llm.Usage]("embeddings")

// The members "usage" and "meta" tell the same to clients of Jina and of Cohere.
var responseJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(r *Response) *string { return &r.ID }).Always(),
	jsonwire.Constant[Response]("object", membername.ObjectList),
	jsonwire.String("model", func(r *Response) *string { return &r.Model }).Always(),
	jsonwire.List("results", func(r *Response) *[]Result { return &r.Results }, resultJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *Response) **llm.Usage { return &r.Usage }, jsonwire.ObjectOf[llm.Usage]("")).
		AppendWith(func(r *Response, b []byte) ([]byte, error) { return appendedUsageJSON.Append(b, r.Usage) }),
	jsonwire.Func("meta", (*Response).decodeMeta, (*Response).appendMeta),
	jsonwire.Extra(func(r *Response) *llm.Extra { return &r.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(r *Response) { r.Usage = tokens.Reported(r.Usage) })

// MarshalJSON encodes r.
func (r Response) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(responseJSON, &r)
}

// UnmarshalJSON decodes a response leniently.
func (r *Response) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, responseJSON, r)
}

// decodeMeta reads what Cohere tells of the usage. It ignores what it does not understand.
func (r *Response) decodeMeta(d *jsonwire.Decoder) {
	var meta struct {
		Billed map[string]float64 `json:"billed_units"`
		Tokens map[string]float64
	}
	if json.Unmarshal(d.Raw(), &meta) != nil {
		return
	}
	r.SearchUnits = int64(min(meta.Billed["search_units"], jsonwire.MaxInteger))
	if n := int(min(meta.Tokens["input_tokens"], jsonwire.MaxInteger)); tokens.Reported(r.Usage) == nil {
		r.Usage = &llm.Usage{PromptTokens: n}
	}
}

func (r *Response) appendMeta(b []byte) ([]byte, error) {
	return fmt.Appendf(b, `{"api_version":{"version":"2"},"billed_units":{"search_units":%d},"tokens":{"input_tokens":%d}}`,
		max(r.SearchUnits, 0), cmp.Or(r.Usage, new(llm.Usage)).Total()), nil
}

// CheckReply returns an error that tells why resp, which may be nil, is no reply to r: it has fewer
// results than r asks for, two for a document, one for none, or a score that is not finite. Clients of a
// Handler get a 500 for it.
func (r *Request) CheckReply(resp *Response) error {
	if resp == nil || len(resp.Results) < r.results() {
		return fmt.Errorf("rerank: there are too few results, want at least %d", r.results())
	}
	seen := make([]bool, len(r.Documents))
	for _, result := range resp.Results {
		i, score := result.Index, result.Score
		if i < 0 || i >= len(seen) || seen[i] || math.IsNaN(score) || math.IsInf(score, 0) {
			return fmt.Errorf(
				"rerank: a result has the index %d and the score %v, want each of %d documents once and finite scores",
				i,
				score,
				len(seen),
			)
		}
		seen[i] = true
	}
	return nil
}
