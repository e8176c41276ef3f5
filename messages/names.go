// Names of models that clients of this API use for those that are served.

package messages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
)

// Names maps names that clients use to the models that serve them. It works in both directions: a request
// with a name is served by its model, and the model is listed under the name. Several names may mean the
// same model.
//
// A name may contain one *, which matches any text, including the empty one. If the model contains a * too, that stands
// for the same text. If not, the name is the default for all names that it matches, which are accepted and
// not listed. So
//
//	messages.Names{
//		"claude-demo-*": "demo-*",     // claude-demo-chat is demo-chat, and listed
//		"claude-best":   "demo-large", // listed too
//		"claude-*":      "demo-chat",  // any other, such as claude-haiku-4-5
//	}
//
// Of the names that match, one without a * is preferred, then the longest, then the first in alphabetical
// order. A name that nothing matches is that of the model.
type Names map[string]string

// Validate returns an error that tells which name is wrong: one that is empty, whose model is empty, or which has
// more than one *; and a model that has a * if the name has none, or more than one.
func (n Names) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		model := n[name]
		switch stars := strings.Count(model, "*"); {
		case name == "":
			return fmt.Errorf("messages: Names: a name is empty")
		case strings.Count(name, "*") > 1:
			return fmt.Errorf("messages: Names[%q]: a name must not have more than one *", name)
		case model == "":
			return fmt.Errorf("messages: Names[%q]: the model is empty", name)
		case stars > strings.Count(name, "*"):
			return fmt.Errorf("messages: Names[%q]: the model %q has more * than the name", name, model)
		}
	}
	return nil
}

// A nameTable is the compiled form of Names. It is immutable.
type nameTable struct {
	models   map[string]string // by names without a *
	names    []string          // the keys of models, sorted
	patterns []namePattern     // in the order in which they are tried
}

type namePattern struct{ name, model string }

func newNameTable(n Names) nameTable {
	t := nameTable{models: make(map[string]string)}
	for name, model := range n {
		if strings.Contains(name, "*") {
			t.patterns = append(t.patterns, namePattern{name, model})
		} else {
			t.models[name] = model
		}
	}
	t.names = slices.Sorted(maps.Keys(t.models))
	slices.SortFunc(t.patterns, func(a, b namePattern) int {
		return cmp.Or(len(b.name)-len(a.name), strings.Compare(a.name, b.name))
	})
	return t
}

// model returns the model that serves requests for name.
func (t *nameTable) model(name string) string {
	if model, ok := t.models[name]; ok {
		return model
	}
	for _, p := range t.patterns {
		if text, ok := modelname.Wildcard(p.name, name); ok {
			return strings.Replace(p.model, "*", text, 1)
		}
	}
	return name
}

// list returns the models under the names by which requests reach them: those of Names, and then their own
// unless that means another model. A model is listed once for each name.
func (t *nameTable) list(models []llm.Model) []llm.Model {
	if len(t.models) == 0 && len(t.patterns) == 0 {
		return models
	}
	var list []llm.Model
	seen := make(map[string]bool)
	for _, m := range models {
		for _, name := range append(t.namesOf(m.ID), m.ID) {
			if t.model(name) != m.ID || seen[name] {
				continue
			}
			seen[name] = true
			named := m
			named.ID = name
			list = append(list, named)
		}
	}
	return list
}

// namesOf returns the names that Names has for a model. A more specific name may take some of them for
// another model.
func (t *nameTable) namesOf(model string) []string {
	var names []string
	for _, name := range t.names {
		if t.models[name] == model {
			names = append(names, name)
		}
	}
	for _, p := range t.patterns {
		if !strings.Contains(p.model, "*") {
			continue
		}
		if text, ok := modelname.Wildcard(p.model, model); ok {
			names = append(names, strings.Replace(p.name, "*", text, 1))
		}
	}
	return names
}

// useModel sets req.Model to the model that serves the request. It returns the name
// that the client used if the two differ, and otherwise "". Errors then have that name.
func (p *protocol) useModel(ctx context.Context, req *llm.ChatRequest) (name string) {
	served := p.names.model(req.Model)
	if served == req.Model {
		return ""
	}
	name, req.Model = req.Model, served
	llmhttp.SetModelName(ctx, name)
	return name
}
