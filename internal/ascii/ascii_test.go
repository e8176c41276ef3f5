package ascii_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/ascii"
)

func TestToLower(t *testing.T) {
	assert.Equal(t, "@az[ÄK\xff", ascii.ToLower("@AZ[ÄK\xff"), "the sixth character is the Kelvin sign")
}
