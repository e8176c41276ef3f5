package all_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
)

// Each package with a function Routes of its own is one of those of all.
func TestRoutes_HasEachPackage(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}} {{.ImportPath}}", "../...").Output()
	require.NoError(t, err)
	imports, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{join .Imports \" \"}}", ".").Output()
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(string(out)) {
		dir, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !declaresRoutes(t, dir) || strings.HasSuffix(path, "/all") {
			continue
		}
		found++
		assert.Contains(t, strings.Fields(string(imports)), path)
	}
	assert.NotZero(t, found)
}

// declaresRoutes reports whether a package has a function Routes without a receiver.
func declaresRoutes(t *testing.T, dir string) bool {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile(dir + "/" + file.Name())
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc Routes(") {
			return true
		}
	}
	return false
}

// Each route is there if the Backend has its method, and a 404 if it has not.
func TestRoutes(t *testing.T) {
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	with := endpointtest.New(t, modeltest.New(), llmhttp.Key{}, llmhttp.Options{Routes: all.Routes(nil)})
	without := endpointtest.New(t, chatOnly, llmhttp.Key{}, llmhttp.Options{Routes: all.Routes(nil)})
	for _, rt := range all.Routes(nil) {
		path, ok := strings.CutPrefix(rt.Pattern, "POST ")
		require.True(t, ok, rt.Pattern)
		assert.Contains(t, []int{400, 415}, with.Post(path, "{").Code, rt.Pattern) // 415 if it wants a form
		assert.Equal(t, 404, without.Post(path, "{").Code, rt.Pattern)
	}
}
