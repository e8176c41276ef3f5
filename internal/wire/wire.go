// Package wire has what the endpoints have in common that are packages of their own: see
// [llmhttp.NewRoute].
package wire

import (
	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// Decode decodes the body of a request strictly into req, which is zero, and checks it. extra points to
// the members of req without a field, which [llmhttp.AllowsUnknownMember] must allow.
func Decode[T any, P interface {
	*T
	Validate() error
}](c *llmhttp.Call, table jsonwire.Type[T], req P, extra *llm.Extra) error {
	return c.Body(func(body []byte) error {
		if err := jsonwire.Unmarshal(body, table, (*T)(req)); err != nil {
			return invalid.JSON(err)
		}
		if err := invalid.Members(*extra, func(name string) bool { return llmhttp.AllowsUnknownMember(c.Context(), name) }); err != nil {
			return err
		}
		return req.Validate()
	})
}

// Estimator returns what counts the tokens of a request for a model, for Estimate.Tokens.
func Estimator(c *llmhttp.Call, model string) tokens.Estimator {
	return tokens.Estimator{Model: model, Count: c.TextTokens()}
}
