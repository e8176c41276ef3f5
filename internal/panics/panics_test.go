package panics_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/panics"
)

type badError struct{}

func (badError) Error() string { panic("boom") }

func TestText(t *testing.T) {
	assert.Equal(t, "plain", panics.Text(errors.New("plain")))
	assert.Equal(t, "panics_test.badError whose Error method panicked: boom", panics.Text(badError{}))
}

func TestError(t *testing.T) {
	cause := errors.New("cause")
	err := panics.New(cause)
	assert.ErrorIs(t, err, cause)
	assert.EqualError(t, err, "panic: cause")
	assert.Contains(t, string(err.Stack), "TestError")
	assert.NoError(t, panics.New("text").Unwrap())
}
