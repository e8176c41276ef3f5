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
	NotObjects: []string{"CompletionPrompt"},
}

func TestJSON_TypesAreComplete(t *testing.T)          { jsonSuite.TypesAreComplete(t) }
func TestJSON_TagsAgreeWithTables(t *testing.T)       { jsonSuite.TagsAgreeWithTables(t) }
func TestJSON_RoundTrip(t *testing.T)                 { jsonSuite.RoundTrip(t) }
func TestJSON_OrderAndSpaceDoNotMatter(t *testing.T)  { jsonSuite.OrderAndSpaceDoNotMatter(t) }
func TestJSON_WithinOtherValues(t *testing.T)         { jsonSuite.WithinOtherValues(t) }
func TestJSON_InvalidJSONChangesNothing(t *testing.T) { jsonSuite.InvalidJSONChangesNothing(t) }
func TestJSON_EveryFieldIsEncoded(t *testing.T)       { jsonSuite.EveryFieldIsEncoded(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 50)
}
