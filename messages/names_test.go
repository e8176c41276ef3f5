package messages_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

// A modelServer is a Backend that lists models and replies under their names only.
type modelServer struct {
	llmhttp.Backend
	models []llm.Model
	asked  string // the model of the last request
}

func (s *modelServer) ListModels(context.Context) ([]llm.Model, error) { return s.models, nil }

func (s *modelServer) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	s.asked = req.Model
	for _, m := range s.models {
		if m.ID == req.Model {
			return llm.Reply("Hello")
		}
	}
	return llm.Fail(llm.ModelNotFound(req.Model))
}

// newNamed returns a server of the models with the given IDs, and its Backend.
func newNamed(names messages.Names, key *llmhttp.Key, ids ...string) (*server, *modelServer) {
	b := &modelServer{Backend: llmhttp.BackendFunc(nil)}
	for _, id := range ids {
		b.models = append(b.models, llm.Model{ID: id})
	}
	s := newServer(nil, nil)
	s.Handler = llmhttp.NewHandler(b, llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil }), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Names: names})},
		Logger:    slog.New(slog.DiscardHandler),
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(end *llmhttp.RequestSummary) { s.ends = append(s.ends, end) }}
		},
	})
	return s, b
}

func listedNames(t *testing.T, s *server) []string {
	w := s.do("GET", "/v1/models?limit=1000", "")
	require.Equal(t, 200, w.Code, w.Body)
	var list struct{ Data []struct{ ID string } }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	names := []string{}
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names
}

// What is listed is accepted, and means the model for which it is listed.
func TestNames(t *testing.T) {
	for name, test := range map[string]struct {
		names  messages.Names
		served []string
		listed []string
		means  map[string]string // models by the names of requests
	}{
		"none": {
			nil, []string{"demo-chat", "claude-3"}, []string{"demo-chat", "claude-3"},
			map[string]string{"demo-chat": "demo-chat", "claude-4": "claude-4"},
		},
		"two names of one model": {
			messages.Names{"claude-b": "demo", "claude-a": "demo"}, []string{"demo", "other"},
			[]string{"claude-a", "claude-b", "demo", "other"},
			map[string]string{"claude-a": "demo", "claude-b": "demo", "demo": "demo", "claude-haiku-4-5": "claude-haiku-4-5"},
		},
		"a default is not listed": {
			messages.Names{"claude-*": "demo"}, []string{"demo"}, []string{"demo"},
			map[string]string{"claude-haiku-4-5": "demo", "claude-": "demo", "claude": "claude"},
		},
		"a model that the default hides": {
			messages.Names{"claude-*": "demo"}, []string{"claude-3", "demo"}, []string{"demo"},
			map[string]string{"claude-3": "demo"},
		},
		"a prefix for all": {
			messages.Names{"claude-*": "*", "claude-haiku-*": "demo/a"}, []string{"demo/a", "haiku-x", "claude-3"},
			[]string{"claude-demo/a", "demo/a", "haiku-x", "claude-claude-3"},
			map[string]string{"claude-demo/a": "demo/a", "claude-haiku-4-5": "demo/a", "claude-haiku-x": "demo/a", "claude-claude-3": "claude-3", "claude-3": "3"},
		},
		"the more specific name": {
			messages.Names{"claude-demo-*": "demo-*", "claude-demo-chat": "other", "*": "demo-chat"}, []string{"demo-chat", "demo-b", "other"},
			[]string{"demo-chat", "claude-demo-b", "claude-demo-chat"},
			map[string]string{"claude-demo-chat": "other", "claude-demo-b": "demo-b", "x": "demo-chat", "other": "demo-chat"},
		},
		"equally long": {
			messages.Names{"x*": "a", "*x": "b"}, []string{"a", "b"}, []string{"a", "b"},
			map[string]string{"xx": "b", "xy": "a"},
		},
		"names that change places": {
			messages.Names{"a": "b", "b": "a"}, []string{"a", "b"}, []string{"b", "a"},
			map[string]string{"a": "b", "b": "a"},
		},
		"a model that is not served": {
			messages.Names{"claude-x": "gone"}, []string{"a"}, []string{"a"},
			map[string]string{"claude-x": "gone"},
		},
		"a model that is listed twice": {
			messages.Names{"claude-a": "a", "claude-*": "*"}, []string{"a", "a"}, []string{"claude-a", "a"},
			map[string]string{"claude-a": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newNamed(test.names, &llmhttp.Key{ID: "k"}, test.served...)
			assert.Equal(t, test.listed, listedNames(t, s))
			for name, want := range test.means {
				s.do("POST", messagesPath, `{"model":"`+name+`","max_tokens":9`+hi+`}`)
				assert.Equal(t, want, b.asked, name)
			}
			for _, name := range test.listed {
				w := s.do("POST", messagesPath, `{"model":"`+name+`","max_tokens":9`+hi+`}`)
				assert.Equal(t, 200, w.Code, name)
				assert.Contains(t, w.Body.String(), `"model":"`+name+`"`)
				w = s.do("GET", "/v1/models/"+name, "")
				assert.Equal(t, 200, w.Code, name)
				assert.Contains(t, w.Body.String(), `"id":"`+name+`","display_name":"`+name+`"`)
			}
		})
	}
}

// Permissions are those for the model; records have the model, and the client sees its own name.
func TestNames_ModelsOfKeys(t *testing.T) {
	key := &llmhttp.Key{ID: "k", Models: []string{"demo-chat", "demo-gone"}}
	s, _ := newNamed(messages.Names{"claude-demo-*": "demo-*", "claude-*": "demo-chat"}, key, "demo-chat", "demo-secret")
	assert.Equal(t, []string{"claude-demo-chat", "demo-chat"}, listedNames(t, s))
	for _, stream := range []string{"false", "true"} {
		w := s.do("POST", messagesPath, `{"model":"claude-haiku-4-5","max_tokens":9,"stream":`+stream+hi+`}`)
		assert.Equal(t, 200, w.Code)
		assert.Contains(t, w.Body.String(), `"model":"claude-haiku-4-5"`)
		assert.Equal(t, "demo-chat", s.ends[len(s.ends)-1].Record.Model)
	}
	for path, body := range map[string]string{messagesPath: `"max_tokens":9`, messagesPath + "/count_tokens": `"system":"x"`} {
		for name, requested := range map[string]string{"claude-demo-secret": "claude-demo-secret", "claude-demo-gone": ""} {
			if requested == "" && path != messagesPath {
				continue // the tokens are estimated
			}
			w := s.do("POST", path, `{"model":"`+name+`",`+body+hi+`}`)
			assert.Equal(t, http.StatusNotFound, w.Code, path)
			_, message, err := readError(w.Body.Bytes())
			assert.NoError(t, err)
			assert.Contains(t, message, "`"+name+"`", "that of a Backend as well")
			assert.Equal(t, requested, s.ends[len(s.ends)-1].Requested)
		}
	}
	w := s.do("GET", "/v1/models/claude-demo-secret", "")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, w.Body.String(), "claude-demo-secret")
}

// An error in a stream has the client's name as well.
func TestNames_Errors(t *testing.T) {
	names := messages.Names{"claude-*": "demo-1"}
	late := func(yield func(*llm.ChatChunk, error) bool) {
		if yield(llm.TextChunk("a"), nil) {
			yield(nil, llm.Errorf(500, "", "demo-1 and demo-10 have failed"))
		}
	}
	h := llmhttp.NewHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return late }), llmhttp.AllowAll("a"),
		&llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Names: names})}, Logger: slog.New(slog.DiscardHandler)})
	w := (&server{Handler: h}).do("POST", messagesPath, `{"model":"claude-x","max_tokens":9,"stream":true`+hi+`}`)
	assert.Contains(t, w.Body.String(), "claude-x and demo-10 have failed")
}

func TestNames_Validate(t *testing.T) {
	for want, names := range map[string]messages.Names{
		"":                                 nil,
		"messages: Names: a name is empty": {"": "a"},
		`messages: Names["a"]: the model is empty`:                        {"a": ""},
		`messages: Names["a**"]: a name must not have more than one *`:    {"a**": "a"},
		`messages: Names["a"]: the model "b*" has more * than the name`:   {"a": "b*"},
		`messages: Names["a*"]: the model "b**" has more * than the name`: {"a*": "b**"},
	} {
		err := names.Validate()
		if want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.EqualError(t, err, want)
		assert.PanicsWithValue(t, want, func() { messages.New(&messages.Options{Names: names}) })
	}
}
