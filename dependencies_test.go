package llmhttp_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The root package depends on one module besides the standard library, whatever other
// packages of this module depend on.
func TestDependenciesOfTheRootPackage(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", ".").Output()
	require.NoError(t, err)
	allowed := []string{"github.com/llmhttp/llmhttp", "golang.org/x/time"}
	assert.Subset(t, allowed, strings.Fields(string(out)))
}

// The modules that every user of this module gets are few.
func TestDependenciesOfTheModule(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	assert.ElementsMatch(t, []string{"github.com/stretchr/testify", "golang.org/x/time"}, direct)
}

// A nested module imports no internal package of the root outside of its tests: it is released on its
// own, and a newer root must not break an older one. Any folder with a go.mod is a nested module.
func TestDependenciesOfNestedModules(t *testing.T) {
	t.Parallel()
	const root = "github.com/llmhttp/llmhttp/"
	modules := make(map[string]bool)
	for _, file := range readSourceTree(t).files {
		module := moduleOf(file)
		if module == "." || strings.HasSuffix(file, "_test.go") {
			continue
		}
		modules[module] = true
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			imported := strings.Trim(spec.Path.Value, "\"`")
			isInternal := slices.Contains(strings.Split(imported, "/"), "internal")
			if strings.HasPrefix(imported, root) && isInternal && !strings.HasPrefix(imported, root+module+"/") {
				t.Errorf("%s imports %s, which is internal to another module", file, imported)
			}
		}
	}
	assert.Subset(t, slices.Collect(maps.Keys(modules)), []string{"console", "llmfake", "llmhttpctl", "otelllm", "redislimit", "responsesws", "sqlstore"})
}

// moduleOf returns the folder of the module of a file: the nearest one above it that has a go.mod.
func moduleOf(file string) string {
	dir := path.Dir(file)
	for dir != "." {
		if _, err := os.Stat(filepath.Join(filepath.FromSlash(dir), "go.mod")); err == nil {
			return dir
		}
		dir = path.Dir(dir)
	}
	return dir
}

// maxModuleSize bounds what this module adds to the module cache of its users, in bytes.
const maxModuleSize = 6_000_000

// What programs do not need, such as pictures and npm packages, is in modules of its own: the go
// command leaves directories with a go.mod out of what it downloads.
func TestModuleIsSmall(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("not a checkout")
	}
	out, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-files", "-z").Output()
	require.NoError(t, err)
	files := strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
	require.Contains(t, files, "go.mod")
	var nested []string
	for _, file := range files {
		if path.Base(file) == "go.mod" && file != "go.mod" {
			nested = append(nested, path.Dir(file)+"/")
		}
	}
	total := int64(0)
	for _, file := range files {
		info, err := os.Lstat(file)
		if err != nil || slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
			continue // deleted but not committed, or of another module
		}
		total += info.Size()
		for _, part := range []string{".png", "node_modules/", "package.json", "package-lock.json"} {
			assert.NotContains(t, file, part)
		}
	}
	assert.Less(t, total, int64(maxModuleSize))
	t.Logf("%d bytes", total)
}
