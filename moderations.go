package llmhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationModerations is the [Operation] of telling what is harmful in texts and images.
const OperationModerations Operation = "moderations"

// ScopeModerations is the [Scope] of telling what is harmful in texts and images.
const ScopeModerations Scope = "moderations"

// defaultModerationModel is the model of requests that name none, as in OpenAI's API
// (https://platform.openai.com/docs/api-reference/moderations/create).
const defaultModerationModel = "omni-moderation-latest"

const maxModerationInputs = 2048

// A Moderator is a [Backend] that tells what is harmful in texts and images.
type Moderator interface {
	// Moderate returns a result for each text of req, in their order, or one for all parts. The
	// Moderator owns req.
	Moderate(ctx context.Context, req *ModerationRequest) (*ModerationResponse, error)
}

// A ModerationRequest is the body of POST /v1/moderations. A Handler checks requests before it
// passes them to a Backend: there are 1 to 2048 texts, or 1 to 4096 parts.
type ModerationRequest struct {
	Model string          `json:"model"` // if the client sends none, omni-moderation-latest, as in OpenAI's API
	Input ModerationInput `json:"input,omitzero"`
	Extra llm.Extra       `json:"-"`
}

var moderationRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *ModerationRequest) *string { return &r.Model }).Always(),
	jsonwire.Member("input", func(r *ModerationRequest) *ModerationInput { return &r.Input }, moderationInputJSON),
	jsonwire.Extra(func(r *ModerationRequest) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r ModerationRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(moderationRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *ModerationRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, moderationRequestJSON, r)
}

// A ModerationInput is what a [ModerationRequest] asks about. Exactly one of its fields is not nil.
// In JSON it is an array of strings or of parts. A single text may be a string.
type ModerationInput struct {
	Texts []string   // each has a result of its own; may be empty
	Parts []llm.Part // of type PartText or PartImage; all of them have one result
}

// Results returns the number of results.
func (in ModerationInput) Results() int {
	if in.Parts != nil {
		return 1
	}
	return len(in.Texts)
}

// MarshalJSON encodes in. A single text is encoded without an array around it.
func (in ModerationInput) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(moderationInputJSON, &in)
}

// UnmarshalJSON decodes an input without checking it.
func (in *ModerationInput) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, moderationInputJSON, in)
}

var moderationInputJSON jsonwire.Type[ModerationInput] = moderationInputType{}

type moderationInputType struct{}

func (moderationInputType) IsZero(in *ModerationInput) bool {
	return in.Texts == nil && in.Parts == nil
}

func (moderationInputType) Append(b []byte, in *ModerationInput) ([]byte, error) {
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

func (moderationInputType) Decode(d *jsonwire.Decoder, in *ModerationInput) {
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
func (in *ModerationInput) decodeArray(d *jsonwire.Decoder) {
	name := d.Path()
	d.UnboundedArray(func(i int) {
		isText, isPart := d.Kind() == '"', d.Kind() == '{'
		switch {
		case !isText && !isPart:
			d.Mismatch("one of a string or object")
		case isText && in.Parts != nil || isPart && in.Texts != nil:
			d.Fail(param.Invalid("invalid_type", name, "Invalid type for '%s': expected strings or objects, but got a mixture.", name))
		case isText && d.CountElement(i, maxModerationInputs):
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

// Validate returns an *Error for the first parameter that the format does not allow, and sets the
// Model if it is empty. Functions that decode requests call it: see [BindModerations].
func (r *ModerationRequest) Validate() error {
	r.Model = cmp.Or(r.Model, defaultModerationModel)
	switch in := &r.Input; {
	case in.Texts == nil && in.Parts == nil:
		return invalid.Missing("input")
	case len(in.Texts)+len(in.Parts) == 0:
		return invalid.EmptyArray("input")
	case len(in.Texts) > maxModerationInputs:
		return invalid.LongArray("input", maxModerationInputs, len(in.Texts))
	}
	for i := range r.Input.Parts {
		if p := &r.Input.Parts[i]; p.Type != "" && p.Type != llm.PartText && p.Type != llm.PartImage {
			return invalid.Value(param.Path("input", i, "type"), p.Type, llm.PartText, llm.PartImage)
		}
	}
	return llm.Content(r.Input.Parts).Validate("input")
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *ModerationRequest) EndUser() string { return param.EndUser(r.Extra) }

// countModeration counts the tokens of a request for a moderation.
func countModeration(c tokens.Estimator, r *ModerationRequest) int {
	n := c.Label(r.Model) + c.Extra(r.Extra)
	for _, text := range r.Input.Texts {
		n += c.Text(text)
	}
	for i := range r.Input.Parts {
		p := &r.Input.Parts[i]
		if p.Type != llm.PartText {
			n += tokens.TokensPerMedia
		}
		texts.WalkPart(p, func(kind texts.Kind, s *string) { n += c.OfKind(kind, *s) }, func(kind texts.Kind, e llm.Extra) { n += c.Members(kind, e) })
	}
	return n
}

// A ModerationResponse has the results of a [ModerationRequest]. It is decoded leniently: see
// [llm.ChatChunk].
type ModerationResponse struct {
	ID      string             `json:"id"`             // if empty, the Handler makes one
	Model   string             `json:"model"`          // if empty, the request's
	Results []ModerationResult `json:"results"`        // see [Moderator]
	Usage   *llm.Usage         `json:"usage,omitzero"` // without completion_tokens; nil if it is not known
	Extra   llm.Extra          `json:"-"`
}

// A ModerationResult tells what is harmful in a text, or in texts and images together. The maps are
// by the names of categories, such as "violence/graphic". The SDKs of OpenAI have fields for its
// categories, and take those that are missing for harmless.
type ModerationResult struct {
	Flagged    bool                `json:"flagged"`
	Categories map[string]bool     `json:"categories"`                            // whether it belongs to a category
	Scores     map[string]float64  `json:"category_scores"`                       // from 0 to 1 if the model allows; finite
	InputTypes map[string][]string `json:"category_applied_input_types,omitzero"` // "text" and "image": what the score is about
	Extra      llm.Extra           `json:"-"`
}

var moderationResultJSON = jsonwire.NewObject(
	jsonwire.Bool("flagged", func(r *ModerationResult) *bool { return &r.Flagged }).Always(),
	jsonwire.Member("categories", func(r *ModerationResult) *map[string]bool { return &r.Categories }, categoriesType[bool]{}).Always(),
	jsonwire.Member("category_scores", func(r *ModerationResult) *map[string]float64 { return &r.Scores }, categoriesType[float64]{}).Always(),
	jsonwire.Member("category_applied_input_types", func(r *ModerationResult) *map[string][]string { return &r.InputTypes }, categoriesType[[]string]{}),
	jsonwire.Extra(func(r *ModerationResult) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r.
func (r ModerationResult) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(moderationResultJSON, &r)
}

// UnmarshalJSON decodes a result leniently.
func (r *ModerationResult) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, moderationResultJSON, r)
}

// A categoriesType is the Type of objects whose members are categories. Nil is an empty object.
// Values of another type than V, and null, are dropped.
type categoriesType[V any] struct{}

func (categoriesType[V]) IsZero(m *map[string]V) bool { return *m == nil }

func (categoriesType[V]) Append(b []byte, m *map[string]V) ([]byte, error) {
	if *m == nil {
		return append(b, "{}"...), nil
	}
	return AppendJSON(b, *m)
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

var moderationResponseJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(r *ModerationResponse) *string { return &r.ID }).Always(),
	jsonwire.String("model", func(r *ModerationResponse) *string { return &r.Model }).Always(),
	jsonwire.List("results", func(r *ModerationResponse) *[]ModerationResult { return &r.Results }, moderationResultJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *ModerationResponse) **llm.Usage { return &r.Usage }, usageJSON).
		AppendWith(func(r *ModerationResponse, b []byte) ([]byte, error) { return embeddingUsageJSON.Append(b, r.Usage) }),
	jsonwire.Extra(func(r *ModerationResponse) *llm.Extra { return &r.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(r *ModerationResponse) { r.Usage = tokens.Reported(r.Usage) })

// MarshalJSON encodes r.
func (r ModerationResponse) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(moderationResponseJSON, &r)
}

// UnmarshalJSON decodes a response leniently.
func (r *ModerationResponse) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, moderationResponseJSON, r)
}

// CheckReply returns an error that tells why resp, which may be nil, is no reply to r.
func (r *ModerationRequest) CheckReply(resp *ModerationResponse) error {
	if resp == nil || len(resp.Results) != r.Input.Results() {
		return fmt.Errorf("llmhttp: the number of results of a moderation is not %d", r.Input.Results())
	}
	for i := range resp.Results {
		for _, score := range resp.Results[i].Scores {
			if math.IsNaN(score) || math.IsInf(score, 0) {
				return errors.New("llmhttp: a score of a moderation is not a finite number")
			}
		}
	}
	return nil
}

func (r *ModerationResponse) size() int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Results {
		result := &r.Results[i]
		n += texts.ElementSize * (1 + len(result.Categories) + len(result.Scores) + len(result.InputTypes))
		n += jsonwire.ExtraSize(result.Extra)
	}
	return n
}

var moderationsOperation = operation{name: OperationModerations, scope: ScopeModerations, supportedBy: Has[Moderator], output: OutputNone}

// decodeModerations decodes POST /v1/moderations.
func decodeModerations(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*ModerationRequest, func(b []byte, r *ModerationResponse) ([]byte, error), error) {
	req := new(ModerationRequest)
	return req, moderationResponseJSON.Append, decodeChecked(ctx, body, moderationRequestJSON, req, &req.Extra)
}

// BindModerations binds a route to moderations, with [ScopeModerations]. decode checks the request
// by [ModerationRequest.Validate]. The reply that encode gets is complete. If the Backend is no
// [Moderator], the client gets a 404. See "Protocols" in the package documentation.
func BindModerations(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *ModerationRequest, encode func(b []byte, reply *ModerationResponse) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return moderationsOperation.bindCall(func(c *Call) error {
		req, encode, err := decodeBody(c.q, decode)
		if err != nil {
			return err
		}
		return serveModeration(c, req, encode)
	})
}

func serveModeration(c *Call, req *ModerationRequest, encode func(b []byte, reply *ModerationResponse) ([]byte, error)) error {
	err := c.Reserve(Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return countModeration(c.q.tokenEstimator(), req) },
		Params: RequestParams{Messages: req.Input.Results()},
	})
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req
	var reply ModerationResponse
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		resp, err := callAbility(ctx, b, Moderator.Moderate, req)
		if err != nil {
			return Used{}, err
		}
		if resp == nil {
			return Used{}, asked.CheckReply(nil)
		}
		reply = *resp // which belongs to the Backend
		return Used{Usage: resp.Usage, Model: resp.Model, Size: resp.size()}, asked.CheckReply(resp)
	})
	if err != nil {
		return err
	}
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) {
		reply.Usage, reply.Model, reply.ID = new(c.Usage()), cmp.Or(reply.Model, asked.Model), cmp.Or(reply.ID, randomid.New("modr-"))
		return encode(b, &reply)
	})
}
