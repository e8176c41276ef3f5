package pricing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
)

// A listing is a Backend with models of the given names.
type listing []string

func (listing) Chat(context.Context, *llm.ChatRequest) llm.ChatStream {
	return llm.Reply("Hi")
}

func (l listing) ListModels(context.Context) (models []llm.Model, err error) {
	if l == nil {
		return nil, errors.New("the server is down")
	}
	for _, id := range l {
		models = append(models, llm.Model{ID: id})
	}
	return models, nil
}

// A program tells at its start which models have no price.
func ExampleTable_Check() {
	table, err := pricing.Parse([]byte(`{"models": {"chat-large": {"input": 3, "output": 15}}, "aliases": {"large": "chat-large"}}`), nil)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(table.Check(context.Background(), listing{"large", "best"}))
	// Output: pricing: these models have no price: ["best"]
}

func TestTable_Check(t *testing.T) {
	later := time.Now().AddDate(1, 0, 0).Format(time.DateOnly)
	for name, tc := range map[string]struct {
		doc    string
		opts   *pricing.Options
		models listing
		want   string
	}{
		"nothing":    {`{"models": {}}`, nil, listing{}, ""},
		"all":        {`{"models": {"a": {"input": 1}, "b*": {"image": 1}}}`, nil, listing{"a", "b1"}, ""},
		"default":    {`{"models": {}, "default": {"input": 1}}`, nil, listing{"a"}, ""},
		"several":    {`{"models": {"b": {"input": 1}}}`, nil, listing{"a", "b", "c"}, `these models have no price: ["a" "c"]`},
		"free":       {`{"models": {}}`, &pricing.Options{Unknown: pricing.Free}, listing{"a"}, `these models have no price: ["a"]`},
		"zero":       {`{"models": {"a": {"input": 0}}}`, nil, listing{"a"}, ""},
		"later":      {`{"models": {"a": [{"from": "` + later + `", "input": 1}]}}`, nil, listing{"a"}, `these models have no price: ["a"]`},
		"no servers": {`{"models": {}}`, nil, nil, "the models are not known: the server is down"},
		"by Name": {`{"models": {"x/a": {"input": 1}}}`, &pricing.Options{Name: func(r *llmhttp.UsageRecord) string { return "x/" + r.Model }},
			listing{"a", "b"}, `these models have no price: ["b"]`},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := pricing.Parse([]byte(tc.doc), tc.opts)
			require.NoError(t, err)
			if err := table.Check(t.Context(), tc.models); tc.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, "pricing: "+tc.want)
			}
		})
	}

	table, err := pricing.ParseLiteLLM([]byte(`{"good": {"mode": "chat", "input_cost_per_token": 1e-6}, "bad": {"mode": "chat", "input_cost_per_token": "?"}}`), nil)
	require.NoError(t, err)
	require.NotEmpty(t, table.Mistakes())
	assert.EqualError(t, table.Check(t.Context(), listing{"good", "bad"}), `pricing: these models have no price: ["bad"]`)
	assert.ErrorIs(t, table.Check(t.Context(), llmhttp.ChatOnly(memory.Echo())), errors.ErrUnsupported)
}
