package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// started returns an Observer that keeps what Started gets, and adds a value to the context.
func started(list *[]*llmhttp.RequestInfo) llmhttp.Observer {
	return func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			*list = append(*list, info)
			return context.WithValue(ctx, startedKey{}, len(*list))
		}}
	}
}

type startedKey struct{}

func TestRequestSummary_Timing(t *testing.T) {
	for name, token := range map[string]llm.Delta{
		"text":      {Content: "a"},
		"reasoning": {Reasoning: "a"},
		"refusal":   {Refusal: "a"},
		"call":      {ToolCalls: []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f"}}}},
		"encrypted": {ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningEncrypted, Data: "a"}}},
	} {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					delta := func(d llm.Delta) *llm.ChatChunk {
						return &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}}
					}
					s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						for _, c := range []*llm.ChatChunk{
							delta(llm.Delta{Role: llm.RoleAssistant}), delta(token), delta(token), {Usage: &llm.Usage{PromptTokens: 1}},
						} {
							time.Sleep(time.Second)
							yield(c, nil)
						}
						time.Sleep(time.Second)
					})})
					s.chat(body)
					want := llmhttp.Timing{
						FirstChunk: time.Second, FirstToken: 2 * time.Second, LastToken: 3 * time.Second,
						FirstWrite: time.Second, Duration: 5 * time.Second,
					}
					if mode == "whole" {
						want.FirstWrite = 5 * time.Second
					}
					got := s.summary()
					assert.Equal(t, want, got.Timing, "the request was admitted at once")
					assert.Equal(t, 4, got.Chunks)
				})
			})
		}
	}
}

// A keep-alive comment is a write, but not a token.
func TestRequestSummary_TimingOfASilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: time.Second, Timeout: 5 * time.Second}}, backend: streamBackend(
			func(ctx context.Context, _ yieldFunc) { <-ctx.Done() })})
		s.chat(streamBody)
		got := s.summary()
		assert.Equal(t, llmhttp.Timing{FirstWrite: time.Second, Duration: 5 * time.Second}, got.Timing)
		assert.True(t, got.Aborted())
		assert.Equal(t, llmhttp.ClassTimeout, got.ErrorClass)
	})
}

// A client that leaves while its reply is written aborts a stream, but not a whole reply.
func TestRequestSummary_Aborted(t *testing.T) {
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{backend: textBackend(strings.Repeat("a", 100_000))})
				client := s.send(rawPost("HTTP/1.1", chatPath, body))
				synctest.Wait()
				client.Close()
				s.waitForSummaries(1)
				got := s.summary()
				assert.Equal(t, 200, got.Status)
				assert.Equal(t, llmhttp.ClassCanceled, got.ErrorClass)
				assert.Equal(t, mode == "stream", got.Aborted())
			})
		})
	}
}

func TestObservation_Started(t *testing.T) {
	const params = `"n":2,"max_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":40,"presence_penalty":1,"frequency_penalty":-1,` +
		`"seed":9,"stop":["x","y"],"reasoning_effort":"low","response_format":{"type":"json_object"},` +
		`"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, test := range []struct {
		name, path, body string
		want             llmhttp.RequestInfo
	}{
		{"chat", chatPath, chatBody, llmhttp.RequestInfo{Operation: llmhttp.OperationChat, Model: "demo-chat",
			Params: llmhttp.RequestParams{Choices: 1, Messages: 1}}},
		{"stream", chatPath, streamBody, llmhttp.RequestInfo{Operation: llmhttp.OperationChat, Model: "demo-chat", Stream: true,
			Params: llmhttp.RequestParams{Choices: 1, Messages: 1}}},
		{"parameters", chatPath, chatWith(params), llmhttp.RequestInfo{Operation: llmhttp.OperationChat, Model: "demo-chat",
			Params: llmhttp.RequestParams{
				MaxTokens: 7, Choices: 2, Messages: 1, Tools: 1, Temperature: new(0.5), TopP: new(0.25), TopK: new(40.0),
				PresencePenalty: new(1.0), FrequencyPenalty: new(-1.0), Seed: new(9), Stop: []string{"x", "y"},
				ReasoningEffort: "low", ResponseFormatType: "json_object",
			}}},
		{"members of another type", chatPath, chatWith(`"top_k":"x"`), llmhttp.RequestInfo{Operation: llmhttp.OperationChat,
			Model: "demo-chat", Params: llmhttp.RequestParams{Choices: 1, Messages: 1}}},
		{"images", imagesPath, `{"model":"m","prompt":"p","n":3}`, llmhttp.RequestInfo{Operation: llmhttp.OperationImages, Model: "m",
			Params: llmhttp.RequestParams{Choices: 3, Messages: 1}}},
		{"embeddings", embeddingsPath, `{"model":"m","input":["p","q"],"dimensions":5,"encoding_format":"base64"}`,
			llmhttp.RequestInfo{Operation: llmhttp.OperationEmbeddings, Model: "m",
				Params: llmhttp.RequestParams{Choices: 1, Messages: 2, Dimensions: 5, EncodingFormat: "base64"}}},
		{"speech", speechPath, `{"model":"m","input":"p","voice":"alloy","response_format":"wav"}`,
			llmhttp.RequestInfo{Operation: audio.OperationSpeech, Model: "m", Stream: true,
				Params: llmhttp.RequestParams{Choices: 1, Messages: 1, ResponseFormatType: "wav"}}},
		{"completions", completionsPath, `{"model":"m","prompt":["a","b"],"n":2,"max_tokens":7,"temperature":0.5,"top_p":0.25,"presence_penalty":1,"frequency_penalty":-1,"seed":9,"stop":"x","top_k":40}`,
			llmhttp.RequestInfo{Operation: completion.Operation, Model: "m", Params: llmhttp.RequestParams{
				MaxTokens: 7, Choices: 4, Messages: 2, Temperature: new(0.5), TopP: new(0.25), TopK: new(40.0),
				PresencePenalty: new(1.0), FrequencyPenalty: new(-1.0), Seed: new(9), Stop: []string{"x"},
			}}},
		{"moderations", moderationsPath, `{"model":"m","input":["a","b"]}`,
			llmhttp.RequestInfo{Operation: moderation.Operation, Model: "m", Params: llmhttp.RequestParams{Choices: 1, Messages: 2}}},
		{"moderation of parts", moderationsPath, `{"model":"m","input":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
			llmhttp.RequestInfo{Operation: moderation.Operation, Model: "m", Params: llmhttp.RequestParams{Choices: 1, Messages: 1}}},
		{"rerank", rerankPath, `{"model":"m","query":"q","documents":["a","b","c"]}`,
			llmhttp.RequestInfo{Operation: rerank.Operation, Model: "m", Params: llmhttp.RequestParams{Choices: 1, Messages: 3}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []*llmhttp.RequestInfo
			var seen []any
			see := func(ctx context.Context) { seen = append(seen, ctx.Value(startedKey{})) }
			b := &stubBackend{call: func(ctx context.Context) error { see(ctx); return nil }}
			b.chat = func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
				see(ctx)
				if r.Temperature != nil {
					*r.Temperature = -1 // the request belongs to the Backend
				}
				return llm.Reply("a")
			}
			usage := &usageLog{before: func(ctx context.Context) error { see(ctx); return nil }}
			s := startServer(t, config{backend: b, usage: usage, opts: llmhttp.Options{Observe: started(&got)}})
			require.Equal(t, 200, s.do("POST", test.path, test.body).StatusCode)
			e := s.summary()
			require.Len(t, got, 1)
			assert.Equal(t, []any{1, 1}, seen, "the Backend and the UsageStore get the context")
			assert.Same(t, got[0], e.Request)
			assert.WithinDuration(t, time.Now(), got[0].Arrived, testTimeout)
			test.want.ID, test.want.Account, test.want.KeyID, test.want.Protocol = e.Record.ID, "acme", "key_1", "chat"
			test.want.Arrived = got[0].Arrived
			assert.Equal(t, test.want, *got[0])
			assert.Equal(t, test.want.Operation, e.Record.Operation)
			assert.Equal(t, "POST "+test.path, e.Route)
			assert.Positive(t, e.Admitted)
		})
	}
}

// Started is not called for a request that does not reach the Backend, or that calls no
// model.
func TestObservation_NotStarted(t *testing.T) {
	var got []*llmhttp.RequestInfo
	s := startServer(t, config{opts: llmhttp.Options{Observe: started(&got)}})
	for i, send := range []func(){
		func() { s.chat("{") }, func() { s.chat(chatBody, withoutKey) }, func() { s.get(modelsPath) }, func() { s.get("/v1/none") },
	} {
		send()
		s.waitForSummaries(i + 1) // a summary may come after its reply
	}
	s.shutdown()
	s.chat(chatBody)
	s.waitForSummaries(5)
	assert.Empty(t, got)
	for i, want := range []string{"POST " + chatPath, "POST " + chatPath, "GET " + modelsPath, "", "POST " + chatPath} {
		e := s.summaries()[i]
		assert.Nil(t, e.Request)
		assert.Equal(t, want, e.Route)
	}
}

func TestObservation_StartedPanics(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Started: func(context.Context, *llmhttp.RequestInfo) context.Context { panic(secretCause) }}
	}}})
	s.chat(chatBody).checkError(t, 500)
	assert.Empty(t, s.usage.records(), "the Backend was not called")
}

func TestRequestSummary_Reply(t *testing.T) {
	chunks := []string{
		`{"id":"reply-1","model":"served-model","choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`,
	}
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			s := startServer(t, config{backend: jsonBackend(t, chunks...)})
			s.chat(strings.Replace(body, "{", `{"n":3,`, 1))
			assert.Equal(t, llmhttp.ReplySummary{ID: "reply-1", Model: "served-model",
				FinishReasons: []llm.FinishReason{"stop", "length"}}, s.summary().Reply)
		})
	}
	t.Run("cut", func(t *testing.T) {
		s := startServer(t, config{backend: failAfter(errCause, "a")})
		s.chat(streamBody)
		assert.Equal(t, llmhttp.ReplySummary{FinishReasons: []llm.FinishReason{""}}, s.summary().Reply)
	})
	t.Run("embeddings", func(t *testing.T) {
		s := startServer(t, config{backend: &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}, Model: "served-model"}, nil
		}}})
		s.do("POST", embeddingsPath, embeddingBody)
		assert.Equal(t, llmhttp.ReplySummary{Model: "served-model"}, s.summary().Reply)
	})
}

func TestRequestSummary_ErrorClass(t *testing.T) {
	withBackend := func(err error) config { return config{backend: failingBackend(err)} }
	scoped := testKey()
	scoped.Scopes = []llmhttp.Scope{}
	keyStore := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, errCause })
	limiter := &stubLimiter{take: func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, errCause }}
	panics := streamBackend(func(context.Context, yieldFunc) { panic(secretCause) })
	ownError := &llm.Error{Status: 599, Code: "code-of-an-upstream-server", Err: errCause}
	for _, test := range []struct {
		name               string
		config             config
		method, path, body string
		want               llmhttp.ErrorClass
	}{
		{"success", config{}, "POST", chatPath, chatBody, ""},
		{"bad request", config{}, "POST", chatPath, "{", llmhttp.ClassInvalidRequest},
		{"too large", config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: 1}}}, "POST", chatPath, chatBody, llmhttp.ClassInvalidRequest},
		{"unknown key", config{keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, llmhttp.ErrKeyNotFound })},
			"POST", chatPath, chatBody, llmhttp.ClassAuthentication},
		{"scope", config{keys: keysFor(scoped)}, "POST", chatPath, chatBody, llmhttp.ClassPermission},
		{"unknown path", config{}, "GET", "/v1/none", "", llmhttp.ClassNotFound},
		{"method", config{}, "GET", chatPath, "", llmhttp.ClassNotFound},
		{"unknown model", withBackend(llm.ModelNotFound("m")), "POST", chatPath, chatBody, llmhttp.ClassNotFound},
		{"limit", config{keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.Rate{N: -1}})}, "POST", chatPath, chatBody, llmhttp.ClassRateLimit},
		{"limit of the Backend", withBackend(llm.Errorf(429, "slow_down", "x")), "POST", chatPath, chatBody, llmhttp.ClassRateLimit},
		{"deadline", withBackend(context.DeadlineExceeded), "POST", chatPath, chatBody, llmhttp.ClassTimeout},
		{"key store", config{keys: keyStore}, "POST", chatPath, chatBody, llmhttp.ClassKeyStore},
		{"limiter", config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(1)}), opts: llmhttp.Options{Limiter: limiter}},
			"POST", chatPath, chatBody, llmhttp.ClassLimiter},
		{"backend", withBackend(errCause), "POST", chatPath, chatBody, llmhttp.ClassBackend},
		{"backend in mid-stream", config{backend: failAfter(errCause, "a")}, "POST", chatPath, streamBody, llmhttp.ClassBackend},
		{"400 in mid-stream", config{backend: failAfter(llm.Errorf(400, "", "x"), "a")}, "POST", chatPath, streamBody, llmhttp.ClassInvalidRequest},
		{"error of another server", withBackend(ownError), "POST", chatPath, chatBody, llmhttp.ClassBackend},
		{"panic", config{backend: panics}, "POST", chatPath, chatBody, llmhttp.ClassBackend},
		{"no vectors", config{backend: &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			return nil, nil
		}}}, "POST", embeddingsPath, embeddingBody, llmhttp.ClassBackend},
		{"models", withBackend(errCause), "GET", modelsPath, "", llmhttp.ClassBackend},
		{"usage", config{opts: llmhttp.Options{Usage: brokenQuery{}}}, "GET", usagePath, "", llmhttp.ClassUsageStore},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServer(t, test.config)
			s.do(test.method, test.path, test.body)
			e := s.summary()
			assert.Equal(t, test.want, e.ErrorClass, "%v", e.Err)
			assert.Equal(t, test.want != "", e.Err != nil)
		})
	}
}

// A brokenQuery is a UsageStore whose Query fails.
type brokenQuery struct{}

func (brokenQuery) Record(context.Context, ...llmhttp.UsageRecord) error { return nil }

func (brokenQuery) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, errCause
}

// A storingProtocol cannot save replies, and has routes that do not call the Backend for
// a chat.
type storingProtocol struct{ savingProtocol }

func (p storingProtocol) Routes() []llmhttp.Route {
	load := func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) { return nil, errCause }
	list := func(context.Context, *http.Request, []byte) (func([]byte, []llm.Model) ([]byte, error), error) {
		return func(b []byte, _ []llm.Model) ([]byte, error) { return b, nil }, nil
	}
	return append(p.savingProtocol.Routes(),
		llmhttp.Route{Pattern: "GET /stored", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, load)},
		llmhttp.Route{Pattern: "GET /list", Bind: llmhttp.BindModels(list)})
}

// The Backend is not blamed for failures of a Protocol, its store and Options.ImageURL.
func TestRequestSummary_ErrorClassAfterTheBackend(t *testing.T) {
	const plainBody = `{"model":"m","text":"Hi"`
	save := func(context.Context, string) error { return errCause }
	imageURL := func(context.Context, []byte, string) (string, error) { return "", errCause }
	opts := llmhttp.Options{Protocols: []llmhttp.Protocol{storingProtocol{savingProtocol{save: save}}}, ImageURL: imageURL}
	for _, test := range []struct {
		name, method, path, body string
		want                     llmhttp.ErrorClass
	}{
		{"whole reply is not saved", "POST", "/plain", plainBody + "}", llmhttp.ClassInternal},
		{"stream is not saved", "POST", "/plain", plainBody + `,"stream":true}`, llmhttp.ClassInternal},
		{"stored reply", "GET", "/stored", "", llmhttp.ClassInternal},
		{"models of a Protocol", "GET", "/list", "", llmhttp.ClassBackend},
		{"image URL", "POST", imagesPath, imageBody, llmhttp.ClassInternal},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := &stubBackend{
				images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
					return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("image")}}}, nil
				},
				models: func(context.Context) ([]llm.Model, error) { return nil, errCause },
			}
			s := startServer(t, config{backend: b, opts: opts})
			s.do(test.method, test.path, test.body, withPlainKey)
			e := s.summary()
			require.ErrorIs(t, e.Err, errCause)
			assert.Equal(t, test.want, e.ErrorClass)
		})
	}
}

// Requests that clients abandon have their own ErrorClass, and so have those that
// Shutdown refuses or interrupts.
func TestRequestSummary_ErrorClassOfInterruptedRequests(t *testing.T) {
	for mode, body := range chatModes {
		for _, speaks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reply began=%t", mode, speaks), func(t *testing.T) {
				waits := streamBackend(func(ctx context.Context, yield yieldFunc) {
					ctx, end := llmhttp.StartTry(ctx, "target")
					if speaks {
						yield(llm.TextChunk("a"), nil)
					}
					<-ctx.Done()
					end(context.Cause(ctx))
				})
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{backend: waits})
					gone := s.send(rawPost("HTTP/1.1", chatPath, body))
					synctest.Wait()
					gone.Close()
					s.waitForSummaries(1)
					stopped := s.begin("POST", chatPath, body)
					synctest.Wait()
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					s.handler.Shutdown(ctx)
					<-stopped
					s.waitForSummaries(2)
					s.chat(body).checkError(t, 503)
					s.waitForSummaries(3)
					var got []llmhttp.ErrorClass
					for _, e := range s.summaries() {
						got = append(got, e.ErrorClass)
						for _, try := range e.Tries {
							assert.Equal(t, e.ErrorClass, try.ErrorClass)
						}
					}
					assert.Equal(t, []llmhttp.ErrorClass{llmhttp.ClassCanceled, llmhttp.ClassShutdown, llmhttp.ClassShutdown}, got)
				})
			})
		}
	}
}

func TestRequestSummary_Refused(t *testing.T) {
	none := llmhttp.Rate{N: -1}
	for want, limits := range map[string]llmhttp.Limits{
		"":                     {Requests: noRefill(1), Tokens: noRefill(1000), Quota: llmhttp.Quota{Tokens: 1000}, Concurrent: 1},
		llmhttp.BucketRequests: {Requests: none, Tokens: noRefill(1000), Quota: llmhttp.Quota{Tokens: 1000}},
		llmhttp.BucketTokens:   {Requests: noRefill(1), Tokens: noRefill(1)},
		llmhttp.LimitQuota:     {Requests: noRefill(1), Quota: llmhttp.Quota{Tokens: -1}},
		llmhttp.SlotConcurrent: {Requests: noRefill(1), Concurrent: -1},
	} {
		t.Run(want, func(t *testing.T) {
			s := startServer(t, config{keys: limitedKeys(limits)})
			r := s.chat(chatBody)
			assert.Equal(t, want != "", r.StatusCode == 429)
			refused := s.summary().Refused
			assert.Equal(t, want, refused.Limit)
			if want != "" {
				assert.Equal(t, llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}, refused.Subject)
			} else {
				assert.Zero(t, refused)
			}
		})
	}
}

func TestRequestSummary_RecordErr(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errCause },
		"panic": func(context.Context) error { panic(secretCause) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{usage: &usageLog{before: before}})
			require.Equal(t, 200, s.chat(chatBody).StatusCode)
			assert.Error(t, s.summary().RecordErr)
		})
	}
	s := startServer(t, config{})
	s.chat(chatBody)
	assert.NoError(t, s.summary().RecordErr)
}
