package members

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// A server is a Handler of all formats, with a Backend that keeps the request that it got.
type server struct {
	handler http.Handler
	got     any
}

func newServer() *server {
	s := new(server)
	s.handler = llmhttp.NewHandler(s, llmhttp.AllowAll("a"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
		Logger:    slog.New(slog.DiscardHandler),
	})
	return s
}

// Chat replies in the way that the name of the model asks for.
func (s *server) Chat(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	s.got = req
	chunks, ok := chunksOf[req.Model]
	if !ok {
		chunks = chunksOf["plain"]
	}
	if status, ok := strings.CutPrefix(req.Model, "status "); ok {
		n, _ := strconv.Atoi(status)
		return llm.Fail(llm.Errorf(n, "", "failed"))
	}
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, text := range chunks {
			c := new(llm.ChatChunk)
			if err := json.Unmarshal([]byte(text), c); err != nil {
				panic(err)
			}
			if !yield(c, nil) {
				return
			}
		}
		if req.Model == "broken" {
			yield(nil, errors.New("broken"))
		}
	}
}

var chunksOf = map[string][]string{
	"plain":  {`{"choices":[{"delta":{"content":"Hello"}}]}`, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`},
	"cut":    {`{"choices":[{"delta":{"content":"Hel"},"finish_reason":"length"}]}`},
	"broken": {`{"choices":[{"delta":{"content":"Hel"}}]}`},
	"custom": {`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"custom","custom":{"name":"g","input":"x"}}]}}]}`},
	"refusal": {
		`{"choices":[{"delta":{"refusal":"No."},"logprobs":{"content":null,"refusal":[{"token":"No.","logprob":0,"bytes":[78],"top_logprobs":[]}]}}]}`,
	},
	"full": {
		`{"service_tier":"priority","system_fingerprint":"fp","choices":[{"delta":{"reasoning_content":"Hm","reasoning_details":[
			{"type":"reasoning.text","text":"Hm","signature":"s"},{"type":"reasoning.encrypted","data":"d"}]}}]}`,
		`{"choices":[{"delta":{"content":"Hello","annotations":[{"type":"url_citation",
			"url_citation":{"url":"https://a.test","title":"A","content":"c","start_index":0,"end_index":5}}]},
			"logprobs":{"content":[{"token":"Hello","logprob":-1,"bytes":[72],"top_logprobs":[{"token":"Hello","logprob":-1,"bytes":[72]}]}],"refusal":null}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
			{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{\"input\":\"x\"}"}},
			{"index":2,"id":"c3","type":"function","function":{"name":"n__h","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"metadata":{"a":"b"},"moderation":{"input":{"type":"moderation_results","model":"m","results":[{"type":"moderation_result","model":"m","flagged":false,
			"categories":{},"category_scores":{},"category_applied_input_types":{}}]},"output":{"type":"error","code":"c","message":"m"}},"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,
			"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"cache_creation_token_details":{"5m":1,"1h":1},"audio_tokens":1,"image_tokens":1,"text_tokens":1},
			"completion_tokens_details":{"reasoning_tokens":1,"audio_tokens":1,"text_tokens":1,"accepted_prediction_tokens":1,"rejected_prediction_tokens":1},
			"server_tool_use":{"web_search_requests":1,"web_fetch_requests":1},"inference_geo":"us","speed":"fast"}}`,
	},
}

// imageReply has what servers of images yield. Each image is a PNG of one pixel.
const imageReply = `{"background":"opaque","output_format":"png","quality":"high","size":"1024x1024","data":[{"b64_json":"` + pixel + `","revised_prompt":"A"}],
	"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"input_tokens_details":{"text_tokens":1,"image_tokens":0},
		"output_tokens_details":{"text_tokens":0,"image_tokens":2}}}`

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func (s *server) Embed(_ context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	s.got = req
	return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}, Usage: &llm.Usage{PromptTokens: 1}}, nil
}

func (s *server) GenerateImages(_ context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	s.got = req
	images := new(llm.ImageResponse)
	err := json.Unmarshal([]byte(imageReply), images)
	for len(images.Data) < req.Count() {
		images.Data = append(images.Data, images.Data...)
	}
	return images, err
}

func (s *server) ListModels(context.Context) ([]llm.Model, error) {
	return []llm.Model{{
		ID: "full", Created: 1, OwnedBy: "x", ContextWindow: 1000, OutputLimit: 100,
		Capabilities: []llm.Capability{llm.CapabilityTools, llm.CapabilityThinking, llm.CapabilityVision},
	}}, nil
}

func (s *server) CountTokens(_ context.Context, req *llm.ChatRequest) (int, error) {
	s.got = req
	return 1, nil
}

// A result is what a request causes.
type result struct {
	status  int
	backend any    // the request that the Backend got, as JSON
	reply   string // without what differs from reply to reply
}

// varying are IDs and times.
var varying = regexp.MustCompile(`[0-9a-f]{32}|"(created|created_at|completed_at)":\d+`)

func (s *server) send(path string, request any) result {
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	s.got = nil
	w := s.serve(path, string(body), false)
	var backend any
	if s.got != nil {
		got, err := json.Marshal(s.got)
		if err == nil {
			err = json.Unmarshal(got, &backend)
		}
		if err != nil {
			panic(err)
		}
	}
	return result{w.Code, backend, varying.ReplaceAllString(w.Body.String(), "")}
}

// sendText sends a request, or gets the path if that is empty.
func (s *server) sendText(path, body string, isAnthropic bool) string {
	return s.serve(path, body, isAnthropic).Body.String()
}

func (s *server) serve(path, body string, isAnthropic bool) *httptest.ResponseRecorder {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if isAnthropic {
		r.Header.Set("Anthropic-Version", "2026-10-21")
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}
