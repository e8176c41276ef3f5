package pricing_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const documented = `{
  "models": {
    "chat-large": {
      "input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6",
      "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}],
      "service_tiers": {"batch": {
        "input": "1.5", "output": "7.5",
        "above": [{"prompt_tokens": 200000, "input": "3", "output": "11.25"}]
      }}
    },
    "chat-small*": [
      {"input": "0.1", "output": "0.4"},
      {"from": "2026-07-01", "input": "0.08", "output": "0.3"}
    ],
    "pictures": {"image": "0.04", "images": [{"size": "1024x1024", "quality": "hd", "price": "0.08"}]}
  },
  "aliases": {"large": "chat-large"},
  "accounts": {"acme": "0.9", "*": "1.2"},
  "default": {"input": "10", "output": "30"}
}`

// The format in doc.go is the one that ExampleParse reads.
func TestDoc(t *testing.T) {
	data, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	assert.Contains(t, string(data), "//\t"+strings.ReplaceAll(documented, "\n", "\n//\t")+"\n")
}
