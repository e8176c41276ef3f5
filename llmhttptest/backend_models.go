// Checks of lists of models.

package llmhttptest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var modelsOperation = operation{
	checks: []check[backendTest]{{
		"Models",
		checkModels,
	}},
}

func checkModels(t testing.TB, b backendTest) {
	var lists [2][]string
	for i := range lists {
		models, err := ability.ListModels(t.Context(), b.Backend)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the Backend is not a ModelLister")
		}
		if err != nil {
			t.Fatalf("ListModels returned the error %v, want nil", err)
		}
		for _, m := range models {
			wantJSON(t, fmt.Sprintf("model %q", m.ID), m, m.Extra)
			if m.ID == "" || slices.Contains(lists[i], m.ID) {
				t.Errorf("ListModels returned the ID %q after %q, want unique IDs that are not empty", m.ID, lists[i])
			}
			if m.Created < 0 {
				t.Errorf("ListModels: model %q has Created %d, want a Unix time or 0", m.ID, m.Created)
			}
			checkModelDetails(t, &m)
			lists[i] = append(lists[i], m.ID)
		}
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("ListModels returned %q and then %q, want the same order", lists[0], lists[1])
	}
	for _, id := range b.models {
		if !b.opts.AnyModel && !slices.Contains(lists[0], id) {
			t.Errorf("ListModels returned %q, want it to include %q of BackendOptions", lists[0], id)
		}
	}
}

// checkModelDetails checks what clients read of a model besides its ID.
func checkModelDetails(t testing.TB, m *llm.Model) {
	t.Helper()
	for i, c := range m.Capabilities {
		if c == "" || slices.Contains(m.Capabilities[:i], c) {
			t.Errorf("ListModels: model %q has Capabilities %q, want different ones that are not empty", m.ID, m.Capabilities)
			return
		}
	}
}
