package clients

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sampleText contains what is easily corrupted: emoji of several runes, line
// separators, quotes, and text that looks like the end of a stream.
const sampleText = "The \"quick\" fox 🦊 and the family 👩‍👩‍👧‍👦\n\ndata: [DONE]\n\n" +
	"<naïve> 日本語 & \u2028 line, back\\slash\ttab. The end."

// longText takes long to stream: with a delay before each chunk, tests interrupt
// the stream before its end.
var longText = strings.Repeat("All work and no play makes Jack a dull boy. ", 200)

// A forecast has the arguments of the forecast tool.
type forecast struct {
	City string `json:"city"`
	Unit string `json:"unit"`
	Days int    `json:"days"`
}

var forecastSchema = map[string]any{
	"type": "object",
	"properties": map[string]any{
		"city": map[string]any{"type": "string", "minLength": 1},
		"unit": map[string]any{"type": "string", "enum": []string{"celsius", "fahrenheit"}},
		"days": map[string]any{"type": "integer", "minimum": 2, "maximum": 7},
	},
	"required":             []string{"city", "unit", "days"},
	"additionalProperties": false,
}

// decodeForecast decodes arguments and checks that they match forecastSchema.
func decodeForecast(t *testing.T, arguments string) forecast {
	t.Helper()
	var f forecast
	decodeStrict(t, arguments, &f)
	assert.NotEmpty(t, f.City)
	assert.Contains(t, []string{"celsius", "fahrenheit"}, f.Unit)
	assert.GreaterOrEqual(t, f.Days, 2)
	assert.LessOrEqual(t, f.Days, 7)
	return f
}

// decodeStrict decodes JSON into v and fails if there is a member without a field.
func decodeStrict(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v), "%s", text)
	require.False(t, d.More(), "%s", text)
}
