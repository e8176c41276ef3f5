package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A framedProtocol is a plainProtocol whose replies have a given framing. It answers
// requests without a text without the Backend.
type framedProtocol struct {
	plainProtocol
	framing llmhttp.Framing
}

func (p framedProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /plain", Bind: llmhttp.BindChat(p.decode)}}
}

func (p framedProtocol) decode(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, _, err := p.plainProtocol.decode(ctx, r, body)
	if err != nil {
		return nil, nil, err
	}
	if req.Messages[0].Content.Text() == "" {
		req = nil
	}
	return req, framedEncoder{p.framing}, nil
}

// A framedEncoder appends its calls.
type framedEncoder struct{ framing llmhttp.Framing }

func (e framedEncoder) Framing() llmhttp.Framing { return e.framing }

func (e framedEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	return fmt.Appendf(b, "start %q %t\n", s.Model, s.Created > 0)
}

func (e framedEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	return append(b, c.Choices[0].Delta.Content...), nil
}

func (e framedEncoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	return fmt.Appendf(b, "\nend %d", u.TotalTokens), nil
}

func (e framedEncoder) AppendFailure(b []byte, failure *llm.Error) []byte {
	return fmt.Appendf(b, "\nfailure %s", failure.Message)
}

func framedServer(t testing.TB, f llmhttp.Framing, c config) *testServer {
	c.opts.Protocols = []llmhttp.Protocol{framedProtocol{framing: f}}
	return startServer(t, c)
}

const framedBody, emptyBody = `{"model":"m","text":"Hi"}`, `{"model":"m"}`

// The calls of an encoder, and the reply that they append, are the same for whole replies
// and for streams.
func TestFraming_Reply(t *testing.T) {
	for name, framing := range map[string]llmhttp.Framing{
		"whole":       {Whole: true, ContentType: "audio/mpeg"},
		"stream":      {ContentType: "application/x-ndjson"},
		"JSON":        {Whole: true, ContentType: "application/json"},
		"events":      llmhttp.EventStream(),
		"early start": {ContentType: "text/x", StartsEarly: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := framedServer(t, framing, config{backend: textBackend("Hel", "lo")})
			r := s.do("POST", "/plain", framedBody, withoutKey, withPlainKey)
			assert.Equal(t, 200, r.StatusCode)
			assert.Equal(t, "start \"m\" true\nHello\nend 7", r.body)
			assert.Equal(t, framing.ContentType, r.Header.Get("Content-Type"))
			assert.Equal(t, framing.Whole, r.Header.Get("Content-Length") != "")
			assert.Equal(t, !framing.Whole, s.summary().Streamed)
			assert.EqualValues(t, 7, s.record().Units.PromptTokens+s.record().Units.CompletionTokens)
		})
	}
}

// A request for which decode returns no ChatRequest is answered without the Backend. It
// counts as a request, and is not recorded.
func TestFraming_EmptyReply(t *testing.T) {
	for _, framing := range []llmhttp.Framing{{Whole: true, ContentType: "application/json"}, llmhttp.EventStream()} {
		b := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { panic("called") })
		s := framedServer(t, framing, config{backend: b, keys: limitedKeys(llmhttp.Limits{Requests: noRefill(5), Tokens: noRefill(10), Concurrent: 1})})
		r := s.do("POST", "/plain", emptyBody, withoutKey, withPlainKey)
		assert.Equal(t, 200, r.StatusCode)
		assert.Equal(t, "start \"\" true\n\nend 0", r.body)
		assert.Equal(t, framing.ContentType, r.Header.Get("Content-Type"))
		assert.Equal(t, "4", r.Header.Get("Requests-Left"))
		assert.Empty(t, s.usage.records())
		assert.NoError(t, s.summary().Err)
		assert.Nil(t, s.summary().Request)
	}
}

func TestFraming_WithoutAContentType(t *testing.T) {
	for _, whole := range []bool{false, true} {
		s := framedServer(t, llmhttp.Framing{Whole: whole}, config{backend: textBackend("x")})
		assert.Equal(t, 500, s.do("POST", "/plain", framedBody, withoutKey, withPlainKey).StatusCode)
		assert.Equal(t, llmhttp.ClassInternal, s.summary().ErrorClass)
		assert.Contains(t, s.log.String(), "the Framing of a ChatEncoder has no ContentType")
		assert.Empty(t, s.usage.records(), "the Backend is not called")
	}
}

// What keeps a silent stream alive is what the Framing says, or nothing.
func TestFraming_KeepAlive(t *testing.T) {
	for name, test := range map[string]struct {
		framing llmhttp.Framing
		want    string
	}{
		"nothing":     {llmhttp.Framing{ContentType: "application/x-ndjson"}, "start \"m\" true\nab\nend 6"},
		"early start": {llmhttp.Framing{ContentType: "application/x-ndjson", StartsEarly: true}, "start \"m\" true\nab\nend 6"},
		"a character": {llmhttp.Framing{ContentType: "application/json", KeepAlive: " "}, "  start \"m\" true\na  b  \nend 6"},
		"both":        {llmhttp.Framing{ContentType: "text/x", KeepAlive: "~", StartsEarly: true}, "start \"m\" true\n~~a~~b~~\nend 6"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := streamBackend(func(_ context.Context, yield yieldFunc) {
					for _, text := range []string{"a", "b", ""} {
						time.Sleep(25 * time.Second)
						if text != "" {
							yield(llm.TextChunk(text), nil)
						}
					}
				})
				s := startPipeServer(t, config{backend: slow, opts: llmhttp.Options{
					Bounds: llmhttp.Bounds{KeepAlive: 10 * time.Second}, Protocols: []llmhttp.Protocol{framedProtocol{framing: test.framing}},
				}})
				r := s.do("POST", "/plain", framedBody, withoutKey, withPlainKey)
				assert.Equal(t, test.want, r.body)
			})
		})
	}
}

// A stream in a format without an end for failures is cut after one.
func TestFraming_EndsCleanly(t *testing.T) {
	for _, clean := range []bool{false, true} {
		framing := llmhttp.Framing{ContentType: "application/x-ndjson", EndsCleanly: clean}
		s := framedServer(t, framing, config{backend: failAfter(llm.Errorf(500, "", "It broke."), "Hel")})
		r := s.do("POST", "/plain", framedBody, withoutKey, withPlainKey)
		assert.Equal(t, "start \"m\" true\nHel\nfailure It broke.", r.body)
		assert.Equal(t, clean, r.err == nil)
	}
}
