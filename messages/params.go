// Parameters that change what is asked of the Backend, or where, rather than what the model gets.

package messages

import (
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// replyParams is what the reply depends on besides what the Backend yields.
type replyParams struct {
	isEmpty      bool   // the request only fills the cache
	inferenceGeo string // where the model runs, if the request demands a place
}

// passedOn are the members without a field that the Backend gets under their names. Others are ignored,
// because agents send members of betas that servers of chat completions refuse, and do without them.
var passedOn = []string{memberSpeed}

func (p *params) passOn(req *llm.ChatRequest) {
	for _, name := range passedOn {
		if value, ok := p.Others[name]; ok {
			setExtra(req, name, value)
		}
	}
}

// fillsCache reports whether the request only fills the prompt cache, as max_tokens: 0 does.
func (p *params) fillsCache() bool { return p.MaxTokens != nil && *p.MaxTokens == 0 }

// tokenLimit returns the limit that the Backend gets. Servers of chat completions refuse a limit of zero, and
// programs take it for none. One token is the least that fills their caches too; the reply is without it.
func (p *params) tokenLimit() *int {
	if p.fillsCache() {
		return new(1)
	}
	return p.MaxTokens
}

// checkFillsCache refuses what the API refuses in a request that only fills the cache.
func (p *params) checkFillsCache() error {
	const message = "Input should not be set if max_tokens is 0"
	switch c := p.ToolChoice; {
	case p.Stream:
		return fieldError("stream", "Input should be false if max_tokens is 0")
	case p.Thinking != nil && p.Thinking.Type == "enabled":
		return fieldError("thinking.type", "Input should not be 'enabled' if max_tokens is 0")
	case p.OutputConfig.Format != nil:
		return fieldError("output_config.format", message)
	case p.OutputFormat != nil:
		return fieldError("output_format", message)
	case c != nil && (c.Type == "any" || c.Type == "tool"):
		return fieldError("tool_choice.type", "Input should be 'auto' or 'none' if max_tokens is 0")
	}
	return nil
}

// placeParams has the parameter that demands where the model runs.
type placeParams struct {
	InferenceGeo string `json:"inference_geo"`
}

// anyPlace is the value of inference_geo that promises nothing.
const anyPlace = "global"

// place returns the place that the request demands, or "" if any will do. The places are those that the host
// promises. The server must not ignore others: a client that names a place relies on it.
func (p *placeParams) place(places []string) (string, error) {
	switch {
	case p.InferenceGeo == "" || p.InferenceGeo == anyPlace:
		return "", nil
	case !slices.Contains(places, p.InferenceGeo):
		return "", fieldError(
			memberInferenceGeo, "This server does not promise that models run only in '%s'", clip(p.InferenceGeo),
		)
	}
	return p.InferenceGeo, nil
}
