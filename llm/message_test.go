package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func TestContent_Text(t *testing.T) {
	for doc, want := range map[string]string{
		`null`: "",
		`"a"`:  "a",
		`[]`:   "",
		`[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b"}]`: "ab",
		`[{"type":"odd","text":"x"}]`: "",
	} {
		var c llm.Content
		require.NoError(t, json.Unmarshal([]byte(doc), &c), doc)
		assert.Equal(t, want, c.Text(), doc)
	}
}

func TestContent_InvalidJSON(t *testing.T) {
	for _, doc := range []string{`7`, `true`, `{}`, `[7]`, `["a"]`, `[[]]`, `[{"type":"text"}]`, `[{"type":7}]`} {
		var c llm.Content
		assert.Error(t, json.Unmarshal([]byte(doc), &c), doc)
	}
}
