package pages

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func TestFormatMoney(t *testing.T) {
	for text, want := range map[string]string{
		"0": "$0.00", "0.000000001": "$0.000000001", "-0.00005": "-$0.00005", "0.0001": "$0.0001", "0.12345": "$0.1235",
		"-0.5": "-$0.5000", "1": "$1.00", "-1234.567": "-$1234.57", "0.99999": "$1.0000",
	} {
		var m llm.Money
		require.NoError(t, m.UnmarshalText([]byte(text)))
		assert.Equal(t, want, FormatMoney(m), text)
	}
}
