package llmhttp

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

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
