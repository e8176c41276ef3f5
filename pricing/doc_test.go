package pricing_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The format in doc.go is the one that ExampleParse reads.
func TestDoc(t *testing.T) {
	data, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	assert.Contains(t, string(data), "//\t"+strings.ReplaceAll(documented, "\n", "\n//\t")+"\n")
}
