package responses_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsestore"
)

func newStoringServer(t *testing.T, chunks ...string) *server {
	return newServer(t, &responses.Options{Store: memory.NewResponseStore()}, chunks...)
}

// messageTexts returns the roles and texts of the messages that the Backend got.
func (s *server) messageTexts() string {
	var all []string
	for i := range s.request.Messages {
		m := &s.request.Messages[i]
		all = append(all, string(m.Role)+": "+m.Content.Text())
	}
	return strings.Join(all, ", ")
}

func TestStored_Conversation(t *testing.T) {
	s := newStoringServer(t, chunkText)
	first := s.create(`{"model":"m","instructions":"Be kind.","input":"one"}`)
	assert.Equal(t, true, first["store"])
	assert.Equal(t, first["id"], s.info.Conversation, "before the Backend is called")
	second := must(accumulate(s.stream(`{"model":"m","instructions":"Be brief.","input":"two","previous_response_id":"` + first["id"].(string) + `"}`)))
	assert.Equal(t, first["id"], second["previous_response_id"])
	assert.Equal(t, "system: Be brief., user: one, assistant: Hello, user: two", s.messageTexts())
	s.create(`{"model":"m","input":"three","previous_response_id":"` + second["id"].(string) + `"}`)
	assert.Equal(t, "user: one, assistant: Hello, user: two, assistant: Hello, user: three", s.messageTexts(), "instructions are not inherited")
	assert.Equal(t, first["id"], s.info.Conversation)
	s.create(`{"model":"m","input":"three","store":false,"previous_response_id":"` + second["id"].(string) + `"}`)
	assert.Equal(t, first["id"], s.info.Conversation)
	s.create(`{"model":"m","input":"one","store":false}`)
	assert.Empty(t, s.info.Conversation, "no other request can belong to it")

	message := second["output"].([]any)[0].(object)["id"].(string)
	s.create(`{"model":"m","input":[{"role":"user","content":"two"},{"type":"item_reference","id":"` + message + `"},{"id":"` + message + `"},{"role":"user","content":"four"}]}`)
	assert.Equal(t, "user: two, assistant: HelloHello, user: four", s.messageTexts(), "two texts of the assistant are one message")

	s.ask("acme", "DELETE", "/v1/responses/"+first["id"].(string), "")
	e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"`+second["id"].(string)+`"}`)
	assert.Equal(t, "previous_response_not_found", e.Code)
	assert.Contains(t, e.Message, first["id"], "the message names what is missing")
}

func TestStored_ReferencesTooLong(t *testing.T) {
	s := newStoringServer(t, chunkText)
	s.create(`{"model":"m","input":[{"role":"user","id":"msg_long","content":"` + strings.Repeat("a", 8<<20) + `"}]}`)
	references := func(n int) string {
		return `{"model":"m","store":false,"input":[` + strings.Repeat(`{"id":"msg_long"},`, n) + `{"role":"user","content":"Hi"}]}`
	}
	s.create(references(1))
	e := s.requireRefused(400, "POST", "/v1/responses", references(8))
	assert.Equal(t, "context_length_exceeded", e.Code)
	assert.Equal(t, "input", e.Param)
}

func TestStored_ToolsAndReasoning(t *testing.T) {
	s := newStoringServer(t, reasoningChunks[0], reasoningChunks[1], `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1",`+
		`"function":{"name":"ns__f","arguments":"{}"}},{"index":1,"id":"c2","function":{"name":"patch","arguments":"{\"input\":\"x\"}"}}]}}]}`)
	const tools = `"tools":[{"type":"custom","name":"patch"},{"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"}]}]`
	first := s.create(`{"model":"m","input":"Hi",` + tools + `}`)
	s.create(`{"model":"m","previous_response_id":"` + first["id"].(string) + `","input":[{"type":"function_call_output","call_id":"c1",` +
		`"output":"1"},{"type":"custom_tool_call_output","call_id":"c2","output":"2"}],` + tools + `}`)
	assert.JSONEq(t, `{"role":"assistant","content":null,"reasoning_content":"AB","reasoning_details":[{"type":"reasoning.text","text":"AB",
		"signature":"sig","index":0}],
		"tool_calls":[{"id":"c1","type":"function","function":{"name":"ns__f","arguments":"{}"}},
		{"id":"c2","type":"function","function":{"name":"patch","arguments":"{\"input\":\"x\"}"}}]}`,
		assistantMessage(t, s.request))
	assert.Equal(t, "user: Hi, assistant: , tool: 1, tool: 2", s.messageTexts())

	path := "/v1/responses/" + first["id"].(string)
	assert.Equal(t, first, s.ask("acme", "GET", path, ""), "without encrypted_content")
	shown := s.ask("acme", "GET", path+"?include[]=reasoning.encrypted_content", "")
	assert.NotEmpty(t, shown["output"].([]any)[0].(object)["encrypted_content"])
}

func TestStored_StoreIsFalse(t *testing.T) {
	s := newStoringServer(t, chunkText)
	r := s.create(`{"model":"m","input":"Hi","store":false}`)
	assert.Equal(t, false, r["store"])
	s.requireRefused(404, "GET", "/v1/responses/"+r["id"].(string), "")

	s.err = llm.Errorf(500, "", "It broke.")
	r = must(accumulate(s.stream(`{"model":"m","input":"Hi"}`)))
	assert.Equal(t, "failed", r["status"])
	s.requireRefused(404, "GET", "/v1/responses/"+r["id"].(string), "")
}

func TestStored_Incomplete(t *testing.T) {
	s := newStoringServer(t, `{"choices":[{"delta":{"content":"Hel"},"finish_reason":"length"}]}`)
	r := s.create(`{"model":"m","input":"Hi"}`)
	assert.Equal(t, "incomplete", r["status"])
	assert.Equal(t, r, s.ask("acme", "GET", "/v1/responses/"+r["id"].(string), ""))
}

func TestStored_OtherAccount(t *testing.T) {
	s := newStoringServer(t, chunkText)
	r := s.create(`{"model":"m","input":[{"id":"msg_mine","role":"user","content":"secret"}]}`)
	id := r["id"].(string)
	message := r["output"].([]any)[0].(object)["id"].(string)
	for _, request := range [][3]string{
		{"GET", "/v1/responses/" + id, ""},
		{"DELETE", "/v1/responses/" + id, ""},
		{"GET", "/v1/responses/" + id + "/input_items", ""},
		{"POST", "/v1/responses/" + id + "/cancel", ""},
		{"POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"` + id + `"}`},
		{"POST", "/v1/responses", `{"model":"m","input":[{"type":"item_reference","id":"` + message + `"}]}`},
		{"POST", "/v1/responses", `{"model":"m","input":[{"type":"item_reference","id":"msg_mine"}]}`},
		{"POST", "/v1/responses/input_tokens", `{"model":"m","input":"x","previous_response_id":"` + id + `"}`},
	} {
		status, body := s.send("other", request[0], request[1], request[2])
		assert.Contains(t, []int{400, 404}, status, "%v: %s", request, body)
		unknown := strings.NewReplacer(id, "resp_unknown", message, "msg_unknown", "msg_mine", "msg_unknown")
		status2, body2 := s.send("other", request[0], unknown.Replace(request[1]), unknown.Replace(request[2]))
		assert.Equal(t, status2, status, "%v", request)
		assert.Equal(t, string(body2), unknown.Replace(string(body)), "%v: the reply tells whether the ID exists", request)
		assert.NotContains(t, string(body), "secret")
	}
	assert.Equal(t, r, s.ask("acme", "GET", "/v1/responses/"+id, ""), "nothing was deleted")
}

func TestStored_InputItems(t *testing.T) {
	s := newStoringServer(t, chunkText)
	var input []string
	for i := range 5 {
		input = append(input, fmt.Sprintf(`{"role":"user","content":"%d","id":"msg_%d"}`, i, i))
	}
	r := s.create(`{"model":"m","input":[` + strings.Join(input, ",") + `]}`)
	path := "/v1/responses/" + r["id"].(string) + "/input_items"
	page := func(query string) string {
		p := s.ask("acme", "GET", path+query, "")
		assert.Equal(t, "list", p["object"])
		var ids []string
		for _, it := range p["data"].([]any) {
			it := it.(object)
			ids = append(ids, it["id"].(string))
			assert.Equal(t, "message", it["type"])
			assert.Equal(t, "completed", it["status"])
			assert.Equal(t, []any{object{"type": "input_text", "text": strings.TrimPrefix(it["id"].(string), "msg_")}}, it["content"])
		}
		if len(ids) > 0 {
			assert.Equal(t, ids[0], p["first_id"])
			assert.Equal(t, ids[len(ids)-1], p["last_id"])
		}
		return fmt.Sprint(ids, p["has_more"])
	}
	assert.Equal(t, "[msg_4 msg_3 msg_2 msg_1 msg_0] false", page(""))
	assert.Equal(t, "[msg_0 msg_1] true", page("?order=asc&limit=2"))
	assert.Equal(t, "[msg_2 msg_3] true", page("?order=asc&limit=2&after=msg_1"))
	assert.Equal(t, "[msg_4] false", page("?order=asc&limit=2&after=msg_3"))
	assert.Equal(t, "[] false", page("?after=msg_0"))
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=msg_9"} {
		s.requireRefused(400, "GET", path+query, "")
	}
	s.requireRefused(400, "GET", "/v1/responses/"+r["id"].(string)+"?stream=true", "")
	s.requireRefused(400, "POST", "/v1/responses/"+r["id"].(string)+"/cancel", "")
}

// A failingStore fails with err if that is not nil.
type failingStore struct {
	responsestore.Store
	err error
}

func (s *failingStore) SaveResponse(ctx context.Context, r *responsestore.Response) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.SaveResponse(ctx, r)
}

func (s *failingStore) LoadResponse(ctx context.Context, account, id string) (*responsestore.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.LoadResponse(ctx, account, id)
}

func (s *failingStore) LoadTurn(ctx context.Context, account, id string, maxBytes int) (*responsestore.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.LoadTurn(ctx, account, id, maxBytes)
}

func TestStored_StoreFails(t *testing.T) {
	store := &failingStore{Store: memory.NewResponseStore()}
	s := newServer(t, &responses.Options{Store: store, RequireStore: true}, chunkText)
	r := s.create(`{"model":"m","input":"Hi"}`)
	store.err = errors.New("secret cause")
	failed := must(accumulate(s.stream(`{"model":"m","input":"Hi"}`)))
	assert.Equal(t, "failed", failed["status"], "a response that is not stored must not be completed")
	for _, request := range [][3]string{
		{"POST", "/v1/responses", `{"model":"m","input":"Hi"}`},
		{"POST", "/v1/responses", `{"model":"m","input":"Hi","previous_response_id":"` + r["id"].(string) + `"}`},
		{"GET", "/v1/responses/" + r["id"].(string), ""},
	} {
		e := s.requireRefused(503, request[0], request[1], request[2])
		assert.NotContains(t, e.Message, "secret cause")
	}
	whole := s.create(`{"model":"m","input":"Hi","store":false}`)
	assert.Equal(t, "completed", whole["status"])
}

// The client gets a reply that cannot be stored, unless the host wants all stored.
func TestStored_ReplyIsNotStored(t *testing.T) {
	store := &failingStore{Store: memory.NewResponseStore(), err: errors.New("secret cause")}
	s := newServer(t, &responses.Options{Store: store}, chunkText)
	whole := s.create(`{"model":"m","input":"Hi"}`)
	stream := s.stream(`{"model":"m","input":"Hi"}`)
	streamed := must(accumulate(stream))
	for _, r := range []object{whole, streamed} {
		assert.Equal(t, "completed", r["status"])
		assert.Equal(t, false, r["store"])
		assert.Equal(t, "Hello", r["output"].([]any)[0].(object)["content"].([]any)[0].(object)["text"])
		assert.NotContains(t, fmt.Sprint(r), "secret cause")
		store.err = nil
		e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"`+r["id"].(string)+`"}`)
		assert.Equal(t, "previous_response_not_found", e.Code)
	}
	assert.Contains(t, stream[0].Data, `"store":true`, "it was not known when the stream began")
	assert.Contains(t, stream[len(stream)-1].Data, `"store":false`)
}

// Errors that the store caused have its class.
func TestStored_ErrorClass(t *testing.T) {
	store := &failingStore{Store: memory.NewResponseStore(), err: errors.New("down")}
	for _, test := range []struct {
		method, path, body string
		require            bool
		want               llmhttp.ErrorClass
	}{
		{"POST", "/v1/responses", `{"model":"m","input":"Hi"}`, false, ""},
		{"POST", "/v1/responses", `{"model":"m","input":"Hi"}`, true, llmhttp.ClassResponseStore},
		{"POST", "/v1/responses", `{"model":"m","input":"Hi","stream":true}`, true, llmhttp.ClassResponseStore},
		{"POST", "/v1/responses", `{"model":"m","input":"Hi","previous_response_id":"resp_1"}`, false, llmhttp.ClassResponseStore},
		{"GET", "/v1/responses/resp_1", "", false, llmhttp.ClassResponseStore},
		{"GET", "/v1/responses/resp_1/input_items", "", false, llmhttp.ClassResponseStore},
	} {
		s := newServer(t, &responses.Options{Store: store, RequireStore: test.require}, chunkText)
		s.send("acme", test.method, test.path, test.body)
		summary := <-s.ended
		assert.Equal(t, test.want, summary.ErrorClass, "%v: %v", test, summary.Err)
		assert.Equal(t, test.want == "", summary.SaveErr != nil)
	}
}

// A client that has seen the end of a response can load it at once.
func TestStored_BeforeStreamEnds(t *testing.T) {
	store := memory.NewResponseStore()
	s := newServer(t, &responses.Options{Store: store}, chunkText)
	for range 20 {
		r := must(accumulate(s.stream(`{"model":"m","input":"Hi"}`)))
		stored, err := store.LoadResponse(t.Context(), "acme", r["id"].(string))
		require.NoError(t, err)
		var body object
		require.NoError(t, json.Unmarshal(stored.Body, &body))
		assert.Equal(t, "completed", body["status"])
		assert.Equal(t, r["usage"], body["usage"])
	}
}

// A hangingStore returns only when the context ends.
type hangingStore struct{ responsestore.Store }

func (hangingStore) SaveResponse(ctx context.Context, _ *responsestore.Response) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingStore) LoadResponse(ctx context.Context, _, _ string) (*responsestore.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangingStore) LoadTurn(ctx context.Context, _, _ string, _ int) (*responsestore.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangingStore) DeleteResponse(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStored_StoreHangs(t *testing.T) {
	newHandler := func(require bool) *llmhttp.Handler {
		return llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("acme"), &llmhttp.Options{
			Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: hangingStore{}, RequireStore: require})},
			Logger:    slog.New(slog.DiscardHandler),
			Bounds:    llmhttp.Bounds{KeepAlive: 500 * time.Millisecond},
		})
	}
	const body = `{"model":"demo-chat","input":"Hi","stream":true}`
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := serveDirectly(newHandler(true), []byte(body))
		r, err := accumulate(readEvents(t, w.Body.String()))
		assert.NoError(t, err)
		assert.Equal(t, "failed", r["status"])
		assert.Nil(t, r["completed_at"])
		assert.Equal(t, "We could not store the response. Please try again.", r["error"].(object)["message"])
		assert.Contains(t, w.Body.String(), ": keep-alive\n")
		assert.Equal(t, time.Second, time.Since(start))

		start = time.Now()
		h := newHandler(false)
		w = serveDirectly(h, []byte(body))
		r, err = accumulate(readEvents(t, w.Body.String()))
		assert.NoError(t, err)
		assert.Equal(t, "completed", r["status"])
		assert.Equal(t, false, r["store"])
		assert.Equal(t, time.Second, time.Since(start))

		start = time.Now()
		w = serveDirectly(h, []byte(`{"model":"demo-chat","input":"Hi","previous_response_id":"resp_1"}`))
		assert.Equal(t, 503, w.Code)
		assert.Contains(t, w.Body.String(), "We could not reach the stored responses.")
		assert.Equal(t, 10*time.Second, time.Since(start))

		for _, request := range [][2]string{
			{"GET", "/v1/responses/resp_1"}, {"GET", "/v1/responses/resp_1/input_items"}, {"DELETE", "/v1/responses/resp_1"},
		} {
			start = time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(request[0], request[1], nil))
			assert.Equal(t, 503, w.Code)
			assert.Contains(t, w.Body.String(), "We could not reach the stored responses.")
			assert.Equal(t, 10*time.Second, time.Since(start))
		}
	})
}

// Clients that do not omit empty members send an empty ID for a new conversation.
func TestStored_EmptyPreviousResponse(t *testing.T) {
	for name, s := range map[string]*server{"stored": newStoringServer(t, chunkText), "not stored": newServer(t, nil, chunkText)} {
		t.Run(name, func(t *testing.T) {
			r := s.create(`{"model":"m","input":"one","previous_response_id":""}`)
			assert.Nil(t, r["previous_response_id"])
			assert.Equal(t, "user: one", s.messageTexts())
		})
	}
}

// A Store that was never set would fail each request that stores.
func TestNew_NilStore(t *testing.T) {
	assert.PanicsWithValue(t, "responses: Options.Store holds a nil *memory.ResponseStore", func() {
		responses.New(&responses.Options{Store: (*memory.ResponseStore)(nil)})
	})
}
