package llmhttp_test

import (
	"encoding/json"
	"os/exec"
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
