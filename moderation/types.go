package moderation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// defaultModel is the model of requests that name none, as in OpenAI's API
// (https://platform.openai.com/docs/api-reference/moderations/create).
const defaultModel = "omni-moderation-latest"

const maxTexts = 2048

// A Request is the body of POST /v1/moderations. A Handler checks requests before it passes them to a Backend: there are 1 to 2048 texts, or 1 to 4096 parts.
type Request struct {
	Model string    `json:"model"` // if the client sends none, omni-moderation-latest, as in OpenAI's API
	Input Input     `json:"input,omitzero"`
	Extra llm.Extra `json:"-"`
}

var requestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *Request) *string { return &r.Model }).Always(),
	jsonwire.Member("input", func(r *Request) *Input { return &r.Input }, inputJSON),
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

// An Input is what a [Request] asks about. Exactly one of its fields is not nil.
// In JSON it is an array of strings or of parts. A single text may be a string.
type Input struct {
	Texts []string   // each has a result of its own; may be empty
	Parts []llm.Part // of type PartText or PartImage; all of them have one result
}

// Results returns the number of results.
func (in Input) Results() int {
	if in.Parts != nil {
		return 1
	}
	return len(in.Texts)
}

// MarshalJSON encodes in. A single text is encoded without an array around it.
func (in Input) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(inputJSON, &in)
}

// UnmarshalJSON decodes an input without checking it.
func (in *Input) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, inputJSON, in)
}

var (
	partJSON  = jsonwire.ObjectOf[llm.Part]("")
	partsJSON = jsonwire.TableOf[[]llm.Part]("list")

	inputJSON jsonwire.Type[Input] = inputType{}
)

type inputType struct{}

func (inputType) IsZero(in *Input) bool {
	return in.Texts == nil && in.Parts == nil
}

func (inputType) Append(b []byte, in *Input) ([]byte, error) {
	switch {
	case in.Parts != nil:
		return partsJSON.Append(b, &in.Parts)
	case len(in.Texts) == 1:
		return jsonwire.AppendString(b, in.Texts[0]), nil
	case in.Texts != nil:
		return jsonwire.AppendStrings(b, in.Texts)
	}
	return append(b, "null"...), nil
}

func (inputType) Decode(d *jsonwire.Decoder, in *Input) {
	switch d.Kind() {
	case '"':
		in.Texts = []string{d.String()}
	case '[':
		in.decodeArray(d)
	default:
		d.Mismatch("one of a string or array of strings or objects")
	}
}

// decodeArray decodes an array. The kind of its first element decides what it is an array of.
func (in *Input) decodeArray(d *jsonwire.Decoder) {
	name := d.Path()
	d.UnboundedArray(func(i int) {
		isText, isPart := d.Kind() == '"', d.Kind() == '{'
		switch {
		case !isText && !isPart:
			d.Mismatch("one of a string or object")
		case isText && in.Parts != nil || isPart && in.Texts != nil:
			d.Fail(param.Invalid("invalid_type", name, "Invalid type for '%s': expected strings or objects, but got a mixture.", name))
		case isText && d.CountElement(i, maxTexts):
			in.Texts = append(in.Texts, d.String())
		case isPart && d.CountElement(i, bounds.Parts):
			in.Parts = append(in.Parts, llm.Part{})
			partJSON.Decode(d, &in.Parts[i])
		}
	})
	if in.Texts == nil && in.Parts == nil {
		in.Texts = []string{}
	}
}

// Validate returns an [*llm.Error] for the first parameter that the format does not allow, and sets the
// Model if it is empty. Functions that decode requests call it: see [Serve].
func (r *Request) Validate() error {
	r.Model = cmp.Or(r.Model, defaultModel)
	switch in := &r.Input; {
	case in.Texts == nil && in.Parts == nil:
		return invalid.Missing("input")
	case len(in.Texts)+len(in.Parts) == 0:
		return invalid.EmptyArray("input")
	case len(in.Texts) > maxTexts:
		return invalid.LongArray("input", maxTexts, len(in.Texts))
	}
	for i := range r.Input.Parts {
		if p := &r.Input.Parts[i]; p.Type != "" && p.Type != llm.PartText && p.Type != llm.PartImage {
			return invalid.Value(param.Path("input", i, "type"), p.Type, llm.PartText, llm.PartImage)
		}
	}
	return llm.Content(r.Input.Parts).Validate("input")
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *Request) EndUser() string { return param.EndUser(r.Extra) }

// A Response has the results of a [Request]. It is decoded leniently: see [llm.ChatChunk].
type Response struct {
	ID      string     `json:"id"`             // if empty, the Handler makes one
	Model   string     `json:"model"`          // if empty, the request's
	Results []Result   `json:"results"`        // see [Moderator]
	Usage   *llm.Usage `json:"usage,omitzero"` // without completion_tokens; nil if it is not known
	Extra   llm.Extra  `json:"-"`
}

// A Result tells what is harmful in a text, or in texts and images together. The maps are
// by the names of categories, such as "violence/graphic". The SDKs of OpenAI have fields for its
// categories, and take those that are missing for harmless.
type Result struct {
	Flagged    bool                `json:"flagged"`
	Categories map[string]bool     `json:"categories"`                            // whether it belongs to a category
	Scores     map[string]float64  `json:"category_scores"`                       // from 0 to 1 if the model allows; finite
	InputTypes map[string][]string `json:"category_applied_input_types,omitzero"` // "text" and "image": what the score is about
	Extra      llm.Extra           `json:"-"`
}

var resultJSON = jsonwire.NewObject(
	jsonwire.Bool("flagged", func(r *Result) *bool { return &r.Flagged }).Always(),
	jsonwire.Member("categories", func(r *Result) *map[string]bool { return &r.Categories }, categoriesType[bool]{}).Always(),
	jsonwire.Member("category_scores", func(r *Result) *map[string]float64 { return &r.Scores }, categoriesType[float64]{}).Always(),
	jsonwire.Member("category_applied_input_types", func(r *Result) *map[string][]string { return &r.InputTypes }, categoriesType[[]string]{}),
	jsonwire.Extra(func(r *Result) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r Result) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(resultJSON, &r)
}

// UnmarshalJSON decodes a result leniently.
func (r *Result) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, resultJSON, r)
}

// A categoriesType is the Type of objects whose members are categories. Nil is an empty object.
// Values of another type than V, and null, are dropped.
type categoriesType[V any] struct{}

func (categoriesType[V]) IsZero(m *map[string]V) bool { return *m == nil }

func (categoriesType[V]) Append(b []byte, m *map[string]V) ([]byte, error) {
	if *m == nil {
		return append(b, "{}"...), nil
	}
	return llmhttp.AppendJSON(b, *m)
}

func (categoriesType[V]) Decode(d *jsonwire.Decoder, m *map[string]V) {
	var members map[string]*json.RawMessage
	if json.Unmarshal(d.Raw(), &members) != nil || members == nil {
		return
	}
	*m = make(map[string]V, len(members))
	for name, raw := range members {
		var v V
		if raw != nil && json.Unmarshal(*raw, &v) == nil {
			(*m)[name] = v
		}
	}
}

// appendedUsageJSON is that of a usage without completion tokens.
var appendedUsageJSON = jsonwire.ObjectOf[llm.Usage]("embeddings")

var responseJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(r *Response) *string { return &r.ID }).Always(),
	jsonwire.String("model", func(r *Response) *string { return &r.Model }).Always(),
	jsonwire.List("results", func(r *Response) *[]Result { return &r.Results }, resultJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *Response) **llm.Usage { return &r.Usage }, jsonwire.ObjectOf[llm.Usage]("")).
		AppendWith(func(r *Response, b []byte) ([]byte, error) { return appendedUsageJSON.Append(b, r.Usage) }),
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

// CheckReply returns an error that tells why resp, which may be nil, is no reply to r: it has more or
// fewer results than r asks for, or a score that is not finite. Clients of a Handler get a 500 for it.
func (r *Request) CheckReply(resp *Response) error {
	if resp == nil || len(resp.Results) != r.Input.Results() {
		return fmt.Errorf("moderation: the number of results is not %d", r.Input.Results())
	}
	for i := range resp.Results {
		for _, score := range resp.Results[i].Scores {
			if math.IsNaN(score) || math.IsInf(score, 0) {
				return errors.New("moderation: a score is not a finite number")
			}
		}
	}
	return nil
}
