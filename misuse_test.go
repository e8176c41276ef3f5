package llmhttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// What is meant for the functions of a Protocol does nothing before a request is admitted.
func TestReserveChat_BeforeTheRequestIsAdmitted(t *testing.T) {
	var errs []error
	early := func(ctx context.Context) {
		errs = append(errs, llmhttp.ReserveChat(ctx, &llm.ChatRequest{Model: "m"}))
		llmhttp.CountLoaded(ctx, 1000)
	}
	keys := llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
		early(ctx)
		return &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{Tokens: llmhttp.Rate{N: -1}}}, nil
	})
	s := startServer(t, config{keys: keys, opts: llmhttp.Options{
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			early(ctx)
			return nil, llmhttp.Observation{}
		},
	}})
	assert.Equal(t, 200, s.get("/v1/models").StatusCode)
	assert.Equal(t, []error{nil, nil}, errs)
}

// A Backend that has used models before it finds that one is missing is paid for them.
func TestReportUsage_BeforeA404(t *testing.T) {
	s := startServer(t, config{backend: llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			llm.ReportUsage(ctx, llm.Usage{PromptTokens: 900, CompletionTokens: 100})
			yield(nil, llm.ModelNotFound("second"))
		}
	})})
	s.chat(chatBody).checkError(t, 404)
	assert.EqualValues(t, 1000, s.record().Units.Tokens())
}

// A Backend may pass any text for a target. Records, the Observer and its summary have the same.
func TestStartTry_TargetIsBounded(t *testing.T) {
	long := strings.Repeat("a", 512)
	for target, want := range map[string]string{"a": "a", long: long, long + "a": "", "a\x00b": "", "\xff": ""} {
		var told string
		s := startServer(t, config{
			backend: llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
				_, end := llmhttp.StartTry(ctx, target)
				end(nil)
				return llm.Reply("hello")
			}),
			opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
				return ctx, llmhttp.Observation{Try: func(ctx context.Context, target string) (context.Context, func(llmhttp.TargetTry)) {
					told = target
					return ctx, nil
				}}
			}},
		})
		require.Equal(t, 200, s.chat(chatBody).StatusCode)
		assert.Equal(t, want, s.record().Target)
		assert.Equal(t, want, s.summary().Tries[0].Target)
		assert.Equal(t, want, told)
	}
}

func TestBind_PanicsWithoutAFunction(t *testing.T) {
	for name, bind := range map[string]func(){
		"chat":       func() { llmhttp.BindChat(nil) },
		"embeddings": func() { llmhttp.BindEmbeddings(nil) },
		"images":     func() { llmhttp.BindImages(nil, nil) },
		"models":     func() { llmhttp.BindModels(nil) },
		"count":      func() { llmhttp.BindCountTokens(nil) },
		"query":      func() { llmhttp.BindQuery(llmhttp.ScopeUsage, nil) },
		"scope": func() {
			llmhttp.BindQuery("", func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) { return nil, nil })
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Panics(t, bind) })
	}
}

// A queryProtocol replies to GET /query with reply, and decodes nothing for POST /chat.
type queryProtocol struct {
	llmhttp.Protocol
	reply       llmhttp.QueryReply
	errorStatus int
}

func (p queryProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{
		{Pattern: "GET /query", Bind: llmhttp.BindQuery(llmhttp.ScopeUsage, func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) { return &p.reply, nil })},
		{Pattern: "POST /chat", Bind: llmhttp.BindChat(func(context.Context, *http.Request, []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
			return nil, nil, nil
		})},
		{Pattern: "POST /count", Bind: llmhttp.BindCountTokens(func(context.Context, *http.Request, []byte) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
			return nil, nil, nil
		})},
	}
}

func (p queryProtocol) AppendError(b []byte, e *llm.Error, id string) ([]byte, int) {
	body, status := p.Protocol.AppendError(b, e, id)
	if p.errorStatus != 0 {
		status = p.errorStatus
	}
	return body, status
}

func TestBind_MistakesOfAProtocol(t *testing.T) {
	for name, tt := range map[string]struct {
		protocol     queryProtocol
		method, path string
		cause        string
	}{
		"status too small":   {queryProtocol{reply: llmhttp.QueryReply{Status: 42}}, "GET", "/query", "the Status of a QueryReply is 42"},
		"status too large":   {queryProtocol{reply: llmhttp.QueryReply{Status: 1000}}, "GET", "/query", "the Status of a QueryReply is 1000"},
		"body with 204":      {queryProtocol{reply: llmhttp.QueryReply{Status: 204, Body: []byte("x")}}, "GET", "/query", "with the Status 204 has a Body"},
		"nothing decoded":    {queryProtocol{}, "POST", "/chat", "returned neither an encoder nor an error"},
		"nothing to count":   {queryProtocol{}, "POST", "/count", "returned neither a request"},
		"status of an error": {queryProtocol{errorStatus: 42, reply: llmhttp.QueryReply{Status: 42}}, "GET", "/query", "the Status of a QueryReply is 42"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.protocol.Protocol = llmhttp.ChatCompletions()
			s := startServer(t, config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{tt.protocol}}})
			assert.Equal(t, 500, s.do(tt.method, tt.path, "{}").StatusCode)
			assert.Contains(t, s.log.String(), tt.cause)
		})
	}
}

func TestKey_Validate(t *testing.T) {
	for want, key := range map[string]llmhttp.Key{
		"": {Scopes: []llmhttp.Scope{llmhttp.ScopeChat}, Models: []string{"*"}, Labels: []llmhttp.Label{{Name: "team", Value: "a"}}},
		"Key.Labels: llmhttp: the name of label 0 must be text of 1 to 64 bytes without control characters": {Labels: []llmhttp.Label{{}}},
		"Limits.Requests.N: is zero, but Per or Burst is set":                                               {Limits: llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}},
	} {
		if err := key.Validate(); want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
