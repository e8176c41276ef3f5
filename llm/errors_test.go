package llm_test

import (
	"errors"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The text of an Error is for logs, and includes the cause.
func TestError_Text(t *testing.T) {
	cause := errors.New("cause")
	e := &llm.Error{Status: 404, Code: "code", Message: "message", Err: cause}
	require.EqualError(t, e, "404 code: message: cause")
	require.ErrorIs(t, e, cause)
	require.EqualError(t, &llm.Error{Status: 500}, "500")
	require.EqualError(t, errorf(400, "", "100%"), "400: 100%")
	require.EqualError(t, llm.Errorf(400, "", "%d of %s", 3, "x"), "400: 3 of x")
}

// errorf hides the format from go vet. Errorf without arguments must leave the text
// unchanged.
var errorf = llm.Errorf

func TestError_WithParam(t *testing.T) {
	e := llm.Errorf(400, "c", "Invalid 'a.b': 'a' is not 'a.b'.")
	e.Param = "a.b"
	assert.Equal(t, &llm.Error{Status: 400, Code: "c", Param: "x", Message: "Invalid 'x': 'a' is not 'x'."}, e.WithParam("x"))
	assert.Equal(t, "a.b", e.Param, "unchanged")
	assert.Equal(t, &llm.Error{Message: "''", Param: "x"}, (&llm.Error{Message: "''"}).WithParam("x"))
}
