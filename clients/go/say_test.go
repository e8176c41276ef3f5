package clients

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// saying holds what is easily broken on the way: emoji of several runes, line
// separators, quotes, and what looks like the end of the stream.
const saying = "The \"quick\" fox 🦊 and the family 👩‍👩‍👧‍👦\n\ndata: [DONE]\n\n" +
	"<naïve> 日本語 & \u2028 line, back\\slash\ttab. The end."

// lecture takes long to say: a server started with a delay before each chunk
// is sure to be interrupted in it.
var lecture = strings.Repeat("All work and no play makes Jack a dull boy. ", 200)

// A forecast is what the weather tool is asked for.
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

// readForecast decodes arguments, which must be valid under forecastSchema.
func readForecast(t *testing.T, arguments string) forecast {
	t.Helper()
	var f forecast
	strict(t, arguments, &f)
	assert.NotEmpty(t, f.City)
	assert.Contains(t, []string{"celsius", "fahrenheit"}, f.Unit)
	assert.GreaterOrEqual(t, f.Days, 2)
	assert.LessOrEqual(t, f.Days, 7)
	return f
}

// strict decodes JSON that may have no member v has no field for.
func strict(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v), "%s", text)
	require.False(t, d.More(), "%s", text)
}
