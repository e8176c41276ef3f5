package llm

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
)

// A Model is an entry of the model list. Clients use the context window, the output limit and the
// capabilities, and guess what a server does not tell: set those that are known. It is decoded leniently: see
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

	// Extra has the other members, among them those in which others tell the same as a
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
	objectField(membername.ObjectModel, func(m *Model) *Extra { return &m.Extra }),
	jsonwire.Int("created", func(m *Model) *int64 { return &m.Created }).Always(),
	jsonwire.PlainString("owned_by", func(m *Model) *string { return &m.OwnedBy }).Always(),
	jsonwire.PlainString(memberName, func(m *Model) *string { return &m.DisplayName }).When((*Model).hasDisplayName),
	jsonwire.Int(memberContextLength, func(m *Model) *int { return &m.ContextWindow }).When((*Model).hasContextWindow),
	jsonwire.Int(memberMaxOutputTokens, func(m *Model) *int { return &m.OutputLimit }).When((*Model).hasOutputLimit),
	jsonwire.Func(memberCapabilities, nil, appendCapabilities).When((*Model).hasCapabilities),
	jsonwire.Extra(func(m *Model) *Extra { return &m.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(m *Model) { wrapErrorMembers(&m.Extra) })

const (
	memberName            = "name"
	memberContextLength   = "context_length"
	memberMaxOutputTokens = "max_output_tokens"
	memberCapabilities    = "capabilities"
)

func (m *Model) hasDisplayName() bool { return m.DisplayName != "" }

func (m *Model) hasContextWindow() bool { return m.ContextWindow > 0 }

func (m *Model) hasOutputLimit() bool { return m.OutputLimit > 0 }

func (m *Model) hasCapabilities() bool { return m.Capabilities != nil }

func appendCapabilities(m *Model, b []byte) ([]byte, error) {
	return jsonwire.AppendArray(b, m.Capabilities, func(b []byte, c Capability) ([]byte, error) { return jsonwire.AppendString(b, string(c)), nil })
}

// MarshalJSON encodes m.
func (m Model) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(modelJSON, &m) }

// UnmarshalJSON decodes a model leniently. Besides the names that MarshalJSON writes it
// knows those of vLLM, llama.cpp, OpenRouter and LiteLLM.
func (m *Model) UnmarshalJSON(data []byte) error {
	if err := param.UnmarshalReply(data, modelJSON, m); err != nil {
		return err
	}
	var v vendorModel
	if err := param.UnmarshalReply(data, vendorModelJSON, &v); err != nil {
		return err
	}
	v.fill(m)
	return nil
}

// A vendorModel has what the entries of model lists tell about a model, under the names of
// several servers. Zero, empty and nil mean that the server does not tell.
type vendorModel struct {
	name          string       // OpenRouter (docs/models), MarshalJSON
	displayName   string       // Anthropic (docs: api/models-list), Together
	contextLength int          // OpenRouter, MarshalJSON
	maxModelLen   int          // vLLM (entrypoints/openai/protocol.py: ModelCard)
	capabilities  []Capability // MarshalJSON

	meta                llamaMeta
	architecture        openRouterArchitecture
	topProvider         openRouterProvider
	supportedParameters []string // OpenRouter

	// LiteLLM: the list (proxy/utils.py: create_model_info_response) has the first two,
	// the model info has all.
	maxInputTokens, maxOutputTokens int
	tools, vision, reasoning        *bool
	mode                            string
}

// A llamaMeta is the member meta of llama.cpp (tools/server/server-context.cpp).
type llamaMeta struct {
	served  int // the window with which the server runs; older versions do not tell
	trained int // the window for which the model was made
}

// An openRouterArchitecture is the member architecture of OpenRouter.
type openRouterArchitecture struct{ inputModalities []string }

// An openRouterProvider is the member top_provider of OpenRouter: the limits of the server
// that serves the model.
type openRouterProvider struct{ contextLength, maxCompletionTokens int }

var vendorModelJSON = jsonwire.NewObject(
	jsonwire.PlainString(memberName, func(v *vendorModel) *string { return &v.name }),
	jsonwire.PlainString("display_name", func(v *vendorModel) *string { return &v.displayName }),
	jsonwire.Int(memberContextLength, func(v *vendorModel) *int { return &v.contextLength }),
	jsonwire.Int("max_model_len", func(v *vendorModel) *int { return &v.maxModelLen }),
	stringsField(memberCapabilities, func(v *vendorModel) *[]Capability { return &v.capabilities }),
	jsonwire.Struct("meta", func(v *vendorModel) *llamaMeta { return &v.meta }, jsonwire.NewObject(
		jsonwire.Int("n_ctx", func(m *llamaMeta) *int { return &m.served }),
		jsonwire.Int("n_ctx_train", func(m *llamaMeta) *int { return &m.trained }))),
	jsonwire.Struct("architecture", func(v *vendorModel) *openRouterArchitecture { return &v.architecture }, jsonwire.NewObject(
		stringsField("input_modalities", func(a *openRouterArchitecture) *[]string { return &a.inputModalities }))),
	jsonwire.Struct("top_provider", func(v *vendorModel) *openRouterProvider { return &v.topProvider }, jsonwire.NewObject(
		jsonwire.Int(memberContextLength, func(p *openRouterProvider) *int { return &p.contextLength }),
		jsonwire.Int("max_completion_tokens", func(p *openRouterProvider) *int { return &p.maxCompletionTokens }))),
	stringsField("supported_parameters", func(v *vendorModel) *[]string { return &v.supportedParameters }),
	jsonwire.Int("max_input_tokens", func(v *vendorModel) *int { return &v.maxInputTokens }),
	jsonwire.Int(memberMaxOutputTokens, func(v *vendorModel) *int { return &v.maxOutputTokens }),
	jsonwire.OptionalBool("supports_function_calling", func(v *vendorModel) **bool { return &v.tools }),
	jsonwire.OptionalBool("supports_vision", func(v *vendorModel) **bool { return &v.vision }),
	jsonwire.OptionalBool("supports_reasoning", func(v *vendorModel) **bool { return &v.reasoning }),
	jsonwire.PlainString("mode", func(v *vendorModel) *string { return &v.mode }),
)

// stringsField returns a field that is an array of strings that are not empty. Other values
// are nil. It is not encoded.
func stringsField[T any, S ~string](name string, at func(*T) *[]S) jsonwire.Field[T] {
	return jsonwire.Func(name, func(v *T, d *jsonwire.Decoder) {
		list := at(v)
		if json.Unmarshal(d.Raw(), list) != nil || slices.Contains(*list, "") {
			*list = nil
		}
	}, nil)
}

// fill sets the fields of m of which the server tells. Members of Extra that the fields take
// the place of are removed.
func (v *vendorModel) fill(m *Model) {
	if name := cmp.Or(v.name, v.displayName); name != "" {
		m.DisplayName = name
		delete(m.Extra, memberName)
	}
	if n := v.contextWindow(); n > 0 {
		m.ContextWindow = n
		delete(m.Extra, memberContextLength)
	}
	if n := smallest(v.maxOutputTokens, v.topProvider.maxCompletionTokens); n > 0 {
		m.OutputLimit = n
		delete(m.Extra, memberMaxOutputTokens)
	}
	if list := v.modelCapabilities(); list != nil {
		m.Capabilities = list
		delete(m.Extra, memberCapabilities)
	}
}

// contextWindow returns the smallest window that the server tells. What only bounds it,
// the window of the training or the prompt, counts if there is nothing else.
func (v *vendorModel) contextWindow() int {
	return cmp.Or(
		smallest(v.contextLength, v.topProvider.contextLength, v.maxModelLen, v.meta.served),
		smallest(v.meta.trained),
		smallest(v.maxInputTokens))
}

// smallest returns the smallest of the positive numbers, or 0 if there is none.
func smallest(numbers ...int) int {
	least := 0
	for _, n := range numbers {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// modelCapabilities returns nil unless the server tells of tools and of images, because
// clients do without what a list of capabilities lacks.
func (v *vendorModel) modelCapabilities() []Capability {
	switch {
	case v.capabilities != nil:
		return v.capabilities
	case v.mode == "embedding":
		return []Capability{CapabilityEmbedding}
	case v.supportedParameters != nil && v.architecture.inputModalities != nil:
		return capabilitiesOf(slices.Contains(v.supportedParameters, "tools"), slices.Contains(v.architecture.inputModalities, "image"),
			slices.Contains(v.supportedParameters, "reasoning"))
	case v.tools != nil && v.vision != nil:
		return capabilitiesOf(*v.tools, *v.vision, v.reasoning != nil && *v.reasoning)
	}
	return nil
}

func capabilitiesOf(tools, vision, thinking bool) []Capability {
	list := []Capability{}
	if tools {
		list = append(list, CapabilityTools)
	}
	if vision {
		list = append(list, CapabilityVision)
	}
	if thinking {
		list = append(list, CapabilityThinking)
	}
	return list
}
