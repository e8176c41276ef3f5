// The list of models for Codex, which asks for GET /v1/models?client_version=… and takes context windows,
// efforts and instructions from its member "models": codex-rs/protocol/src/openai_models.rs, ModelsResponse. It
// asks if it is signed in, or if its provider has a command that prints the key (has_command_auth in
// codex-rs/models-manager/src/manager.rs), and otherwise uses what it knows and its configuration.

package responses

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/llm"
)

// isCodexList reports whether r asks for the models as Codex does. OpenAI's API has no such parameter.
func isCodexList(r *http.Request) bool { return r.URL.Query().Has("client_version") }

// A codexModel is a ModelInfo of Codex 0.171. Members that are not pointers are required by this version or by
// one since 0.100; if one is missing, Codex ignores the whole list.
type codexModel struct {
	Slug               string          `json:"slug"`
	DisplayName        string          `json:"display_name"`
	Description        *string         `json:"description"`
	DefaultEffort      *string         `json:"default_reasoning_level,omitempty"`
	Efforts            []codexEffort   `json:"supported_reasoning_levels"`
	ShellType          string          `json:"shell_type"`
	Visibility         string          `json:"visibility"`
	InAPI              bool            `json:"supported_in_api"` // otherwise only shown to those who are signed in
	Priority           int             `json:"priority"`
	Upgrade            *string         `json:"upgrade"`
	Instructions       string          `json:"base_instructions"`
	ReasoningSummaries bool            `json:"supports_reasoning_summaries"`
	Verbosity          bool            `json:"support_verbosity"`
	DefaultVerbosity   *string         `json:"default_verbosity"`
	ApplyPatch         *string         `json:"apply_patch_tool_type"`
	Truncation         codexTruncation `json:"truncation_policy"`
	ParallelCalls      bool            `json:"supports_parallel_tool_calls"`
	ContextWindow      *int            `json:"context_window"`
	MaxContextWindow   *int            `json:"max_context_window"`
	ExperimentalTools  []string        `json:"experimental_supported_tools"`
	InputModalities    []string        `json:"input_modalities,omitempty"`
}

type codexEffort struct {
	Effort      string `json:"effort"`
	Description string `json:"description"`
}

// A codexTruncation bounds what Codex sends of the output of a command.
type codexTruncation struct {
	Mode  string `json:"mode"`
	Limit int    `json:"limit"`
}

// codexEfforts are those of a model that thinks. Other values, such as xhigh, depend on the model.
var codexEfforts = []codexEffort{
	{"low", "Fast replies with little reasoning"},
	{"medium", "Some reasoning"},
	{"high", "Much reasoning for difficult tasks"},
}

// newCodexModel describes m, the model at index in the list. What is the same for all models is what Codex
// assumes for a model that it does not know (codex-rs/models-manager/src/model_info.rs: model_info_from_slug).
func newCodexModel(m *llm.Model, index int, instructions string) codexModel {
	c := codexModel{
		Slug: m.ID, DisplayName: cmp.Or(m.DisplayName, m.ID), Instructions: instructions,
		ShellType: "default", Visibility: "list", InAPI: true, Priority: index,
		Truncation: codexTruncation{Mode: "bytes", Limit: 10_000}, ParallelCalls: true,
		Efforts: []codexEffort{}, ExperimentalTools: []string{},
	}
	if m.ContextWindow > 0 {
		c.ContextWindow, c.MaxContextWindow = &m.ContextWindow, &m.ContextWindow
	}
	if m.Capabilities == nil {
		return c // Codex then sends images
	}
	c.InputModalities = []string{"text"}
	if slices.Contains(m.Capabilities, llm.CapabilityVision) {
		c.InputModalities = append(c.InputModalities, "image")
	}
	if slices.Contains(m.Capabilities, llm.CapabilityThinking) {
		medium := "medium"
		c.Efforts, c.DefaultEffort, c.ReasoningSummaries = codexEfforts, &medium, true
	}
	return c
}

// decodeListModels decodes GET /v1/models of Codex. The reply is the list of OpenAI's API with a member for
// Codex: it has the models that can call tools, as far as that is known.
func (p *protocol) decodeListModels(context.Context, *http.Request, []byte) (func(b []byte, models []llm.Model) ([]byte, error), error) {
	return func(b []byte, models []llm.Model) ([]byte, error) {
		b, err := openai.AppendModelData(b, models)
		if err != nil {
			return b, err
		}
		list := []codexModel{}
		for i := range models {
			m := &models[i]
			if m.Capabilities == nil || slices.Contains(m.Capabilities, llm.CapabilityTools) {
				list = append(list, newCodexModel(m, i, p.opts.CodexInstructions))
			}
		}
		b, err = llmhttp.AppendJSON(append(b, `,"models":`...), list)
		return append(b, '}'), err
	}, nil
}
