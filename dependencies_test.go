package llmhttp_test

import (
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
