package redact_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/llm"
)

func TestError(t *testing.T) {
	const secret = "sk-0123456789"
	r := redact.New(secret)
	cause := errors.New("cause")
	assert.Same(t, cause, r.Error(cause), "an error without a secret stays as it is")

	err := r.Error(fmt.Errorf("no %s: %w", secret, cause))
	assert.EqualError(t, err, "no [redacted]: cause")
	assert.ErrorIs(t, err, cause)
	assert.NoError(t, errors.Unwrap(err), "it would reveal the secret")

	before := &llm.Error{Status: 403, Type: "t" + secret, Code: "c" + secret, Param: "p" + secret, Message: "m" + secret, Err: fmt.Errorf("%s: %w", secret, cause)}
	e, ok := r.Error(before).(*llm.Error)
	require.True(t, ok)
	assert.NotContains(t, fmt.Sprintf("%+v", *e), secret)
	assert.Equal(t, 403, e.Status)
	assert.ErrorIs(t, e, cause)
	assert.Contains(t, before.Message, secret, "is not changed")
}
