package llmhttp_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Hosts that embed the root package import two modules besides the standard
// library. What package memory needs is not among them.
func TestDependenciesOfTheRootPackage(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", ".").Output()
	require.NoError(t, err)
	allowed := []string{"github.com/llmhttp/llmhttp", "github.com/go-json-experiment/json", "golang.org/x/time"}
	assert.Subset(t, allowed, strings.Fields(string(out)))
}
