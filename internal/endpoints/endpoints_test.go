package endpoints

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each pattern belongs to one endpoint, and each operation that calls a model to one scope.
func TestAll(t *testing.T) {
	patterns, scopes := make(map[string]string), make(map[string]string)
	for _, e := range All {
		assert.NotEmpty(t, e.Name)
		assert.NotEmpty(t, e.Patterns, e.Name)
		assert.NotEmpty(t, e.Scope, e.Name)
		assert.NotEmpty(t, e.Package, e.Name)
		for _, p := range e.Patterns {
			assert.Empty(t, patterns[p], p)
			patterns[p] = e.Name
		}
		if scope, ok := scopes[e.Operation]; ok && e.Operation != "" {
			assert.Equal(t, scope, e.Scope, e.Name)
		}
		scopes[e.Operation] = e.Scope
	}
}

func TestRegister(t *testing.T) {
	before := All
	t.Cleanup(func() { All = before })
	All = append(slices.Clone(All), Endpoint{Name: "score", Operation: "score", Package: "example.com/score"})
	has := func(_ context.Context, n int) bool { return n > 1 }
	for _, operation := range []string{"", "chat", "none"} {
		assert.Panics(t, func() { Register(operation, has) }, operation)
	}
	assert.False(t, Supported(t.Context(), "score", 2))
	Register("score", has)
	assert.Panics(t, func() { Register("score", has) })
	assert.True(t, Supported(t.Context(), "score", 2))
	assert.False(t, Supported(t.Context(), "score", 1))
	assert.False(t, Supported(t.Context(), "score", "another type"))
	assert.False(t, Supported(t.Context(), "chat", 2))
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"chat", "chat", 0}, {"chats", "chat", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		assert.Equal(t, tt.want, editDistance(tt.a, tt.b), "%+v", tt)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"chat", "images", "embeddings", "usage"}
	for s, want := range map[string]string{
		"chat": "", "classify": "", "c": "", "": "", "chats": "chat", "ch": "", "usages": "usage", "embed": "embeddings", "embeding": "embeddings", "image": "images",
	} {
		assert.Equal(t, want, Nearest(s, known), s)
	}
	assert.Empty(t, Nearest("chat", nil))
}
