// The list of models. GET /v1/models belongs to two APIs: Route.Match chooses by the header Anthropic-
// Version, which only one kind of client sends.

package messages

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A model is an entry of the model list: ModelInfo of anthropic-sdk-go 2.15. What is not
// known is null.
type model struct {
	Type           string             `json:"type"`
	ID             string             `json:"id"`
	DisplayName    string             `json:"display_name"`
	CreatedAt      string             `json:"created_at"` // RFC 3339
	MaxInputTokens *int               `json:"max_input_tokens"`
	MaxTokens      *int               `json:"max_tokens"`
	Capabilities   *modelCapabilities `json:"capabilities"`
	modelLifecycle
}

// A modelLifecycle tells whether a model is going to be retired. Models of the list are there to be used.
type modelLifecycle struct {
	Lifecycle    string  `json:"lifecycle"`
	DeprecatedAt *string `json:"deprecated_at"`
	RetiresAt    *string `json:"retires_at"`
	Line         *string `json:"line"` // of Anthropic's models
}

// modelCapabilities has all that the API has, because SDKs require each. There is none for tools. What an
// [llm.Model] does not tell of is not supported: clients then do without.
type modelCapabilities struct {
	Batch             support                  `json:"batch"`
	Citations         support                  `json:"citations"`
	CodeExecution     support                  `json:"code_execution"`
	ContextManagement contextManagementSupport `json:"context_management"`
	Effort            effortSupport            `json:"effort"`
	ImageInput        support                  `json:"image_input"`
	PDFInput          support                  `json:"pdf_input"`
	ServerTools       serverToolsSupport       `json:"server_tools"`
	StructuredOutputs support                  `json:"structured_outputs"`
	Thinking          thinkingSupport          `json:"thinking"`
}

type contextManagementSupport struct {
	ClearThinking support `json:"clear_thinking_20251015"`
	ClearToolUses support `json:"clear_tool_uses_20250919"`
	Compact       support `json:"compact_20260112"`
	Supported     bool    `json:"supported"`
}

type serverToolsSupport struct {
	CodeExecution support `json:"code_execution"`
	Supported     bool    `json:"supported"`
	WebSearch     support `json:"web_search"`
}

// effortSupport has the levels of output_config.effort.
type effortSupport struct {
	High      support `json:"high"`
	Low       support `json:"low"`
	Max       support `json:"max"`
	Medium    support `json:"medium"`
	Supported bool    `json:"supported"`
	XHigh     support `json:"xhigh"`
}

type support struct {
	Supported bool `json:"supported"`
}

type thinkingSupport struct {
	Supported bool          `json:"supported"`
	Types     thinkingTypes `json:"types"`
}

// thinkingTypes are the values of thinking.type that requests may have: see
// thinkingConfig.convert.
type thinkingTypes struct {
	Adaptive     support `json:"adaptive"`
	BetweenTools support `json:"between_tools"`
	Disabled     support `json:"disabled"`
	Enabled      support `json:"enabled"`
}

// A modelPage is a page of the model list.
type modelPage struct {
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"` // null if the page is empty
	LastID  *string `json:"last_id"`
}

const (
	defaultPage = 20
	maxPage     = 1000
)

func newModel(m *llm.Model) model {
	created := time.Unix(m.Created, 0).UTC().Format(time.RFC3339)
	return model{
		Type: "model", ID: m.ID, DisplayName: cmp.Or(m.DisplayName, m.ID), CreatedAt: created,
		MaxInputTokens: ifKnown(m.ContextWindow), MaxTokens: ifKnown(m.OutputLimit), Capabilities: newCapabilities(m.Capabilities),
		modelLifecycle: modelLifecycle{Lifecycle: "active"},
	}
}

// ifKnown returns a pointer to n, or nil if n is not positive.
func ifKnown(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func newCapabilities(list []llm.Capability) *modelCapabilities {
	if list == nil {
		return nil
	}
	thinking := support{slices.Contains(list, llm.CapabilityThinking)}
	return &modelCapabilities{
		Effort: effortSupport{
			High: thinking, Low: thinking, Max: thinking, Medium: thinking, XHigh: thinking, Supported: thinking.Supported,
		},
		ImageInput: support{slices.Contains(list, llm.CapabilityVision)},
		Thinking: thinkingSupport{
			Supported: thinking.Supported,
			Types:     thinkingTypes{Adaptive: thinking, BetweenTools: thinking, Disabled: support{true}, Enabled: thinking},
		},
	}
}

// A modelEncoder appends the reply to a request for models.
type modelEncoder = func(b []byte, models []llm.Model) ([]byte, error)

// decodeListModels decodes GET /v1/models.
func (p *protocol) decodeListModels(_ context.Context, r *http.Request, _ []byte) (modelEncoder, error) {
	query := r.URL.Query()
	limit, err := pageLimit(query)
	if err != nil {
		return nil, err
	}
	return func(b []byte, models []llm.Model) ([]byte, error) {
		models, more := selectPage(p.names.list(models), query.Get("after_id"), query.Get("before_id"), limit)
		page := &modelPage{Data: make([]model, len(models)), HasMore: more}
		for i := range models {
			page.Data[i] = newModel(&models[i])
		}
		if n := len(page.Data); n > 0 {
			page.FirstID, page.LastID = &page.Data[0].ID, &page.Data[n-1].ID
		}
		return llmhttp.AppendJSON(b, page)
	}, nil
}

// pageLimit returns the limit parameter of a query.
func pageLimit(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, fieldError("limit", "Input should be an integer from 1 to %d", maxPage).forClient()
	}
	return n, nil
}

// selectPage returns at most limit of the models after one ID and before another, and
// whether there are more. They are the last ones if there is a before, and otherwise the
// first.
func selectPage(models []llm.Model, after, before string, limit int) (page []llm.Model, more bool) {
	start, end := 0, len(models)
	if after != "" {
		start = indexModel(models, after) + 1
	}
	if before != "" {
		end = max(start, indexModel(models, before))
	}
	switch {
	case end-start <= limit:
		return models[start:end], false
	case before != "":
		return models[end-limit : end], true
	}
	return models[start : start+limit], true
}

// indexModel returns the index of the model with the given ID, or -1.
func indexModel(models []llm.Model, id string) int {
	return slices.IndexFunc(models, func(m llm.Model) bool { return m.ID == id })
}

// decodeGetModel decodes GET /v1/models/{id}. The ID may be any name that requests may have.
func (p *protocol) decodeGetModel(_ context.Context, r *http.Request, _ []byte) (modelEncoder, error) {
	name := r.PathValue("id")
	return func(b []byte, models []llm.Model) ([]byte, error) {
		i := indexModel(models, p.names.model(name))
		if i < 0 {
			return nil, llm.ModelNotFound(name)
		}
		named := models[i]
		named.ID = name
		return llmhttp.AppendJSON(b, newModel(&named))
	}, nil
}
