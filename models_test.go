package llmhttp_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/llm"
)

// A model that a key may not use gets the same replies as one that does not exist.
func TestModels_KeySeesOnlyItsModels(t *testing.T) {
	called := false
	b := &stubBackend{
		models: func(context.Context) ([]llm.Model, error) {
			return []llm.Model{{ID: "a"}, {ID: "hf.co/u/Q:Q4"}, {ID: "secret/model"},
				{ID: "b", OwnedBy: "x", Created: 5, Extra: llm.Extra{"shutdown_date": json.RawMessage("null")}}}, nil
		},
		call: func(context.Context) error { called = true; return nil },
	}
	key := testKey()
	key.Models = []string{"hf.co/*", "b"}
	s := startServer(t, config{backend: b, keys: keysFor(key)})
	assert.Equal(t, `{"object":"list","data":[{"id":"hf.co/u/Q:Q4","object":"model","created":0,"owned_by":""},{"id":"b","object":"model","created":5,"owned_by":"x","shutdown_date":null}]}`,
		s.get(modelsPath).body)
	assert.Equal(t, 200, s.get(modelsPath+"/hf.co/u/Q:Q4").StatusCode)
	for _, id := range []string{"secret/model", "a", "missing"} {
		want := errorBody("The model `"+id+"` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found")
		replies := []reply{s.get(modelsPath + "/" + id)}
		for _, op := range testOperations {
			replies = append(replies, s.do("POST", op.path, demoModel.ReplaceAllString(op.body, `"`+id+`"`)))
		}
		for _, r := range replies {
			r.checkError(t, 404)
			assert.Equal(t, want, r.body)
		}
	}
	assert.False(t, called)
}

// demoModel matches the name of a model in the body of one of testOperations.
var demoModel = regexp.MustCompile(`"demo-[^"]*"`)

func TestModels_EmptyListIsNotNull(t *testing.T) {
	noModels := testKey()
	noModels.Models = []string{}
	for name, c := range map[string]config{
		"key without models":     {keys: keysFor(noModels)},
		"Backend without models": {backend: &stubBackend{models: func(context.Context) ([]llm.Model, error) { return nil, nil }}},
	} {
		assert.Equal(t, `{"object":"list","data":[]}`, startServer(t, c).get(modelsPath).body, name)
	}
}

func TestModels_IDHasAtMost512Bytes(t *testing.T) {
	s := startServer(t, config{})
	longest := strings.Repeat("m", 512)
	assert.Equal(t, 200, s.chat(strings.Replace(chatBody, "demo-chat", longest, 1)).StatusCode)
	e := s.chat(strings.Replace(chatBody, "demo-chat", longest+"m", 1)).checkError(t, 404)
	assert.Equal(t, "model_not_found", e.Code)
	assert.Less(t, len(e.Message), 300)
}

// Model IDs with control characters are refused: IDs are recorded, and a store may not
// accept such characters.
func TestModels_IDHasNoControlCharacters(t *testing.T) {
	s := startServer(t, config{})
	for path, body := range modelBodies {
		for _, c := range []string{`\u0000`, `\n`, `\u007f`, `\u0085`} {
			e := s.do("POST", path, strings.Replace(body, "demo-", c, 1)).checkError(t, 404)
			assert.Equal(t, "model_not_found", e.Code)
		}
	}
	assert.Empty(t, s.usage.records())
}

// Every ID that is listed can be requested.
func TestModels_ListsNoIDsThatRequestsCannotName(t *testing.T) {
	ids := []string{"", "a\nb", strings.Repeat("m", 513), "ok"}
	b := &stubBackend{models: func(context.Context) (list []llm.Model, err error) {
		for _, id := range ids {
			list = append(list, llm.Model{ID: id})
		}
		return list, nil
	}}
	assert.Equal(t, `{"object":"list","data":[{"id":"ok","object":"model","created":0,"owned_by":""}]}`, startServer(t, config{backend: b}).get(modelsPath).body)
}
