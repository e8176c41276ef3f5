package llmhttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// ScopeModels is the [Scope] of lists of models.
const ScopeModels Scope = "models"

// A ModelLister is a [Backend] that can list its models.
type ModelLister interface {
	// ListModels returns the models in the order in which clients see them.
	ListModels(ctx context.Context) ([]Model, error)
}

// A Model is an entry of the model list. It is decoded leniently: see
// [ChatChunk].
type Model struct {
	ID      string `json:"id"`       // the name that requests use; may contain slashes
	Created int64  `json:"created"`  // Unix time in seconds; zero if it is not known, and not negative
	OwnedBy string `json:"owned_by"` // empty if it is not known

	// DisplayName is the name that people see. Empty means the ID.
	DisplayName string `json:"name,omitempty"`

	// ContextWindow is the maximum number of tokens of a prompt and its reply
	// together. Zero or negative means that it is not known.
	ContextWindow int `json:"context_length,omitempty"`

	// OutputLimit is the maximum number of tokens of a reply. Zero or negative means
	// that it is not known.
	OutputLimit int `json:"max_output_tokens,omitempty"`

	// Capabilities are what the model can do besides replying to a chat with text. Nil
	// means that this is not known, and empty means nothing. The order has no meaning.
	Capabilities []Capability `json:"capabilities,omitempty"`

	// Extra has the other members, among them those in which servers tell the same as a
	// field, such as max_model_len. Delete those when you change the field.
	Extra Extra `json:"-"`
}

// A Capability is something that a model can do. Other values than the constants are
// allowed.
type Capability string

// The capabilities that clients know. Clients offer no tools to a model, and send it no
// images, if the list of its capabilities lacks them.
const (
	CapabilityTools     Capability = "tools"     // calls tools
	CapabilityVision    Capability = "vision"    // takes images
	CapabilityThinking  Capability = "thinking"  // can yield reasoning
	CapabilityInsert    Capability = "insert"    // fills in text between a prefix and a suffix
	CapabilityEmbedding Capability = "embedding" // computes embedding vectors
)

// OpenAI's API has only the members up to owned_by. The others are written where they are
// known, under names that clients read: name and context_length are OpenRouter's,
// max_output_tokens is LiteLLM's, and capabilities has the values of Ollama
// (types/model/capability.go). When makes a decoder put them into Extra, because the fields
// are zero then. UnmarshalJSON moves those that a field can hold.
var modelJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(m *Model) *string { return &m.ID }).Always(),
	objectField(objectModel, func(m *Model) *Extra { return &m.Extra }),
	jsonwire.Int("created", func(m *Model) *int64 { return &m.Created }).Always(),
	jsonwire.PlainString("owned_by", func(m *Model) *string { return &m.OwnedBy }).Always(),
	jsonwire.PlainString(memberName, func(m *Model) *string { return &m.DisplayName }).When((*Model).hasDisplayName),
	jsonwire.Int(memberContextLength, func(m *Model) *int { return &m.ContextWindow }).When((*Model).hasContextWindow),
	jsonwire.Int(memberMaxOutputTokens, func(m *Model) *int { return &m.OutputLimit }).When((*Model).hasOutputLimit),
	jsonwire.Func(memberCapabilities, nil, appendCapabilities).When((*Model).hasCapabilities),
	jsonwire.Extra(func(m *Model) *Extra { return &m.Extra }),
).Reserve(objectError).AfterDecode(func(m *Model) { wrapErrorMembers(&m.Extra) })

const (
	memberName            = "name"
	memberContextLength   = "context_length"
	memberMaxOutputTokens = "max_output_tokens"
	memberCapabilities    = "capabilities"
)

func (m *Model) hasDisplayName() bool   { return m.DisplayName != "" }
func (m *Model) hasContextWindow() bool { return m.ContextWindow > 0 }
func (m *Model) hasOutputLimit() bool   { return m.OutputLimit > 0 }
func (m *Model) hasCapabilities() bool  { return m.Capabilities != nil }

func appendCapabilities(m *Model, b []byte) ([]byte, error) {
	return appendArray(b, m.Capabilities, func(b []byte, c Capability) ([]byte, error) { return appendString(b, string(c)), nil })
}

// MarshalJSON encodes m.
func (m Model) MarshalJSON() ([]byte, error) { return marshal(modelJSON, &m) }

// UnmarshalJSON decodes a model leniently. Besides the names that MarshalJSON writes it
// knows those of vLLM, llama.cpp, OpenRouter and LiteLLM.
func (m *Model) UnmarshalJSON(data []byte) error {
	if err := unmarshalReply(data, modelJSON, m); err != nil {
		return err
	}
	var v vendorModel
	if err := unmarshalReply(data, vendorModelJSON, &v); err != nil {
		return err
	}
	v.fill(m)
	return nil
}

// A modelList is the reply to GET /v1/models.
type modelList struct{ data []Model }

var modelListJSON = jsonwire.NewObject(
	constantField[modelList]("object", objectList),
	jsonwire.List("data", func(l *modelList) *[]Model { return &l.data }, modelJSON, 0).Always(),
)

var modelsOperation = operation{scope: ScopeModels, supportedBy: implements[ModelLister]}

// decodeListModels decodes GET /v1/models.
func decodeListModels(context.Context, *http.Request, []byte) (func(b []byte, models []Model) ([]byte, error), error) {
	return func(b []byte, models []Model) ([]byte, error) { return modelListJSON.Append(b, &modelList{models}) }, nil
}

// decodeGetModel decodes GET /v1/models/{id}.
func decodeGetModel(_ context.Context, r *http.Request, _ []byte) (func(b []byte, models []Model) ([]byte, error), error) {
	id := r.PathValue("id")
	return func(b []byte, models []Model) ([]byte, error) {
		i := slices.IndexFunc(models, func(m Model) bool { return m.ID == id })
		if i < 0 {
			return nil, ModelNotFound(id)
		}
		return modelJSON.Append(b, &models[i])
	}, nil
}

// listModels asks the Backend for its models and returns those that a request with the
// key may name.
func (q *request) listModels(ctx context.Context) ([]Model, error) {
	models, err := q.h.backend.ListModels(ctx)
	if err != nil {
		return nil, err
	}
	allowed := make([]Model, 0, len(models))
	for _, m := range models {
		if m.ID != "" && q.allowsModel(m.ID) {
			allowed = append(allowed, m)
		}
	}
	return allowed, nil
}

// BindModels binds a route to the list of models, with [ScopeModels]. encode gets the models
// that the key may use, in the order of the Backend, and owns the slice. The request counts
// against the limits on requests, and is not recorded as usage. If the Backend is no
// [ModelLister], the client gets a 404. See "Protocols" in the package documentation.
func BindModels(decode func(ctx context.Context, r *http.Request, body []byte) (
	encode func(b []byte, models []Model) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return modelsOperation.bind(func(q *request) error {
		var encode func(b []byte, models []Model) ([]byte, error)
		err := q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
			if encode, err = decode(ctx, r, body); err == nil && encode == nil {
				err = errNothingDecoded
			}
			return err
		})
		if err != nil {
			return err
		}
		return serveLookup(q, q.listModels, encode)
	})
}

var _ ModelLister = Forwarder{}

// ListModels calls the method of the wrapped [ModelLister].
func (f Forwarder) ListModels(ctx context.Context) ([]Model, error) {
	if b, ok := f.Backend.(ModelLister); ok {
		return b.ListModels(ctx)
	}
	return nil, unsupported("list models")
}
