package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/performance.md has every budget, with its present limit.
func TestBudgets_AreInTheDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/performance.md")
	require.NoError(t, err)
	for _, b := range budgets(results{}) {
		assert.Contains(t, string(text), fmt.Sprintf("\n| %s | %s %g | ", b.what, b.bound, b.limit))
	}
}
