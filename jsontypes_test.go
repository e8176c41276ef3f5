package llmhttp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/codectest"
)

// jsonSuite has the types that encode and decode themselves. The tests of an operation add its types
// and documents.
var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"Transcription": func() any { return new(llmhttp.TranscriptionChunk) },
		"Segment":       func() any { return new(llmhttp.TranscriptionSegment) },
		"Word":          func() any { return new(llmhttp.TranscriptionWord) },
	},
}

func TestJSON(t *testing.T) { jsonSuite.Test(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 20)
}
