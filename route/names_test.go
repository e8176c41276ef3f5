package route_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// A client is told of its own name of the model, whatever the target calls it.
func TestErrorsName(t *testing.T) {
	const theirs = "llama-70b"
	told := &llmhttp.Error{Status: 400, Param: "seed", Message: "llama-70b is not llama-70b-chat.", Err: errors.New("cause")}
	for name, err := range map[string]error{
		"as it is": told,
		"wrapped":  fmt.Errorf("llama-70b: %w", told),
		"later":    &llmhttp.Error{Status: 429, Param: "seed", Message: told.Message},
	} {
		t.Run(name, func(t *testing.T) {
			b := steps(fails(err))
			r := newRouter(t, &route.Options{Rounds: 1}, route.Route{Model: "chat", Targets: []route.Target{{Name: "a", Backend: b, Model: theirs}}})
			w := chat(llmhttp.NewHandler(r, llmhttp.AllowAll("a"), nil), "chat")
			assert.NotEqual(t, http.StatusOK, w.Code)
			assert.Contains(t, w.Body.String(), `"message":"chat is not llama-70b-chat."`)
			assert.Contains(t, w.Body.String(), `"param":"seed"`)
		})
	}
	assert.Equal(t, "llama-70b is not llama-70b-chat.", told.Message, "it is the target's")
}

// What tells of the target's name of a model is not listed.
func TestListsName(t *testing.T) {
	models := []llmhttp.Model{{ID: "llama-70b", Extra: llmhttp.Extra{"root": []byte(`"llama-70b"`), "max_model_len": []byte("8192")}}}
	for model, theirs := range map[string]string{"chat": "llama-70b", "chat-*": "llama-*"} {
		r := newRouter(t, nil, route.Route{Model: model, Targets: []route.Target{{Name: "a", Backend: &lister{list: func(context.Context) ([]llmhttp.Model, error) { return models, nil }}, Model: theirs}}})
		list, err := r.ListModels(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, llmhttp.Extra{"max_model_len": []byte("8192")}, list[0].Extra)
	}
	assert.Len(t, models[0].Extra, 2, "it is the target's")
}
