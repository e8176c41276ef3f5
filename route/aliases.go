package route

import (
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

var _ llmhttp.Aliaser = (*Router)(nil)

// Aliases implements [llmhttp.Aliaser] with the models of the routes that their targets
// call otherwise. It includes the aliases of the targets' Backends.
func (r *Router) Aliases() map[string][]string {
	all := make(map[string][]string)
	for _, rt := range r.routes {
		for _, t := range rt.targets {
			for alias, models := range t.aliases() {
				for _, model := range models {
					if model != alias && !slices.Contains(all[alias], model) {
						all[alias] = append(all[alias], model)
					}
				}
			}
		}
	}
	return all
}

// aliases returns the names of models for which requests reach t, with the names under
// which they are served.
func (t *target) aliases() map[string][]string {
	inner := llmhttp.Forwarder{Backend: t.backend}.Aliases()
	served := func(name string) []string {
		if models := inner[name]; models != nil {
			return models
		}
		return []string{name}
	}
	if !strings.Contains(t.routeModel, "*") {
		return map[string][]string{t.routeModel: served(t.backendModel(t.routeModel))}
	}
	aliases := make(map[string][]string)
	if t.model != "" {
		aliases[t.routeModel] = served(t.model)
	}
	for name, models := range inner {
		if client, ok := t.clientModel(name); ok {
			aliases[client] = models
		}
	}
	return aliases
}
