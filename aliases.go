package llmhttp

import (
	"maps"
	"slices"
	"strings"
)

// checkAliases logs the aliases of models that Options.Cost seems not to know. It skips
// patterns.
func (h *Handler) checkAliases() {
	if h.opts.Cost == nil {
		return
	}
	aliases := h.backend.Aliases()
	if len(aliases) == 0 {
		return
	}
	free, unknown := prices{}, h.prices("a model that does not exist")
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		p := h.prices(alias)
		if strings.Contains(alias, "*") || p != free && p != unknown {
			continue
		}
		for _, model := range aliases[alias] {
			if h.prices(model) != p {
				h.opts.Logger.Error("an alias costs nothing or a default price, and not what the model that serves it costs: Options.Cost gets the name of the alias", "alias", alias, "model", model)
			}
		}
	}
}

// prices are what a million tokens of a prompt, a million of a completion, and an image
// cost, each with a request.
type prices [3]float64

// prices returns the prices of a model by Options.Cost.
func (h *Handler) prices(model string) prices {
	const million = 1_000_000
	return prices{
		h.opts.Cost(UsageSum{Model: model, Requests: 1, PromptTokens: million}),
		h.opts.Cost(UsageSum{Model: model, Requests: 1, CompletionTokens: million}),
		h.opts.Cost(UsageSum{Model: model, Requests: 1, Images: 1}),
	}
}
