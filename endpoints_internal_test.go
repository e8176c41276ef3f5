package llmhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// ScopeAndOperation returns what the Binding of a Route is to, for tests.
func ScopeAndOperation(rt Route) (Scope, Operation) { return rt.Bind.scope, rt.Bind.op.name }

// RouteOfRoot returns a Route that this package has made, for tests.
func RouteOfRoot(pattern string) Route {
	return NewRoute(pattern, &Endpoint{Scope: "own"}, func(*Call) error { return nil })
}

func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"main.main":                                "main",
		"example.com/a/b.Routes":                   "example.com/a/b",
		"example.com/a/b.(*T).Routes":              "example.com/a/b",
		"example.com/a/b.Routes[...].func1":        "example.com/a/b",
		"example.com/a.b/c%2ev2.init":              "example.com/a.b/c.v2",
		"example.com/100%25/b.Routes":              "example.com/100%/b",
		"":                                         "",
		"example.com/a/b%zz.Routes":                "example.com/a/b%zz",
		"github.com/llmhttp/llmhttp_test.TestIt.1": "github.com/llmhttp/llmhttp_test",
	} {
		assert.Equal(t, want, packageOf(function), function)
	}
	assert.Equal(t, "github.com/llmhttp/llmhttp", func() string { return callerPackage() }())
}
