package llmhttp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A textEncoder encodes replies as the text of their chunks.
type textEncoder struct{ framing llmhttp.Framing }

func (e textEncoder) Framing() llmhttp.Framing { return e.framing }

func (textEncoder) AppendStart(b []byte, _ *llmhttp.ReplyStart) []byte { return append(b, "start "...) }

func (textEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	return append(b, c.Choices[0].Delta.Content...), nil
}

func (textEncoder) AppendEnd(b []byte, _ *llm.Usage, _ llm.Extra) ([]byte, error) {
	return append(b, " end"...), nil
}

func (textEncoder) AppendFailure(b []byte, _ *llm.Error) []byte { return append(b, " failed"...) }

var wholeText = textEncoder{llmhttp.Framing{Whole: true, ContentType: "text/plain"}}

// generate is the function of a route that reserves e and replies by encoder with a stream.
func generate(e llmhttp.Estimate, encoder llmhttp.ChatEncoder, stream func(ctx context.Context, b llmhttp.Backend) llm.ChatStream) func(*llmhttp.Call) error {
	return func(c *llmhttp.Call) error {
		if err := c.Reserve(e); err != nil {
			return err
		}
		return c.Generate(encoder, stream)
	}
}

// newGenerating returns a Handler whose route /v1/own calls serve. The key has limits, the log goes to
// log, and what Observers and the UsageStore get to the results.
func newGenerating(limits llmhttp.Limits, log *bytes.Buffer, serve func(*llmhttp.Call) error) (h http.Handler, records *[]llmhttp.UsageRecord, seen *observedGeneration) {
	records, seen = new([]llmhttp.UsageRecord), new(observedGeneration)
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key_1", Account: "a", Limits: limits}, nil
	})
	return llmhttp.NewHandler(memory.Echo(), keys, &llmhttp.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)), Estimates: llmhttp.TokenEstimates{ReserveCompletion: 100},
		Usage: recordingStore{memory.NewUsageStore(), records},
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{
				Transcript: func(t *llmhttp.Transcript) { seen.transcript = t },
				Ended:      func(s *llmhttp.RequestSummary) { seen.summary = s },
			}
		},
		Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Operation: "own", Scope: "own", Output: llmhttp.OutputText}, serve)},
	}), records, seen
}

type observedGeneration struct {
	transcript *llmhttp.Transcript
	summary    *llmhttp.RequestSummary
}

// ownChat returns the request of an endpoint as a chat.
func ownChat() *llm.ChatRequest {
	return &llm.ChatRequest{
		Model: "m", MaxTokens: new(100), Temperature: new(0.5), Extra: llm.Extra{"user": []byte(`"ada"`)},
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("12345678")}},
	}
}

func words(context.Context, llmhttp.Backend) llm.ChatStream { return llm.Reply("words") }

// A request in a form of its own has what a chat has: limits, estimates, Observers and statistics of its
// reply.
func TestCall_Generate(t *testing.T) {
	params := func(choices, messages int) llmhttp.RequestParams {
		return llmhttp.RequestParams{MaxTokens: 100, Choices: choices, Messages: messages, Temperature: new(0.5)}
	}
	three := ownChat()
	three.N = new(3)
	for name, tt := range map[string]struct {
		estimate llmhttp.Estimate
		reserved int // tokens
		params   llmhttp.RequestParams
	}{
		"as a chat": {llmhttp.Estimate{Chat: ownChat()}, 107, params(1, 1)},
		"tokens and messages of its own": {
			llmhttp.Estimate{Chat: ownChat(), Tokens: func() int { return 30 }, Params: llmhttp.RequestParams{Messages: 3, Tools: 9}}, 130, params(1, 3),
		},
		"negative tokens":             {llmhttp.Estimate{Chat: ownChat(), Tokens: func() int { return -30 }}, 100, params(1, 1)},
		"attempts":                    {llmhttp.Estimate{Chat: ownChat(), Attempts: 4}, 407, params(1, 1)},
		"fewer attempts than choices": {llmhttp.Estimate{Chat: three, Attempts: 2}, 307, params(3, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, burst := range []int{tt.reserved, tt.reserved - 1} {
				var log bytes.Buffer
				h, records, seen := newGenerating(llmhttp.Limits{Tokens: llmhttp.Rate{N: 1, Burst: burst}}, &log, generate(tt.estimate, wholeText, words))
				w := httptest.NewRecorder()
				serveOnce(h, w, "{}")
				if burst < tt.reserved {
					assert.Equal(t, 429, w.Code, w.Body)
					assert.Empty(t, *records)
					continue
				}
				require.Equal(t, 200, w.Code, w.Body)
				assert.Equal(t, "start words end", w.Body.String())
				require.Len(t, *records, 1)
				r := (*records)[0]
				assert.Equal(t, "ada", r.User)
				assert.Equal(t, "m", r.Model)
				assert.Equal(t, llmhttp.Operation("own"), r.Operation)
				assert.True(t, r.Estimated)
				assert.EqualValues(t, 2, r.Units.CompletionTokens)
				assert.Equal(t, tt.params, seen.summary.Request.Params)
				assert.Equal(t, []llm.FinishReason{llm.FinishStop}, seen.summary.Reply.FinishReasons)
				assert.Positive(t, seen.summary.FirstToken)
				assert.Equal(t, "12345678", seen.transcript.Messages[0].Content.Text())
				assert.Equal(t, "words", seen.transcript.Choices[0].Message.Content.Text())
			}
		})
	}
}

// Reserve lowers the limit on the tokens of a choice to that of the key, which holds besides what a
// choice repeats of the request.
func TestCall_GenerateLimitsTokens(t *testing.T) {
	for name, tt := range map[string]struct {
		max       *int
		echo      int
		limit     int
		replySize int
	}{
		"no limit":      {nil, 0, 5, 104},
		"a larger one":  {new(9), 0, 5, 104},
		"a smaller one": {new(3), 0, 3, 104},
		"echo":          {nil, 200, 5, 304},
		"negative echo": {nil, -200, 5, 104},
	} {
		t.Run(name, func(t *testing.T) {
			r := ownChat()
			r.MaxTokens = tt.max
			h, _, seen := newGenerating(llmhttp.Limits{MaxCompletionTokens: 5}, new(bytes.Buffer), generate(llmhttp.Estimate{Chat: r, EchoBytes: tt.echo}, wholeText,
				func(context.Context, llmhttp.Backend) llm.ChatStream {
					n, ok := r.TokenLimit()
					assert.True(t, ok)
					assert.Equal(t, tt.limit, n)
					return llm.Reply(strings.Repeat("x", 1000))
				}))
			w := httptest.NewRecorder()
			serveOnce(h, w, "{}")
			assert.Len(t, w.Body.String(), len("start  end")+tt.replySize)
			assert.Equal(t, []llm.FinishReason{llm.FinishLength}, seen.summary.Reply.FinishReasons)
		})
	}
}

// A mistake fails the request, also if the function ignores the errors of the methods.
func TestCall_GenerateWrongOrders(t *testing.T) {
	const order = "Generate of a Call was called before Reserve with a Chat"
	reserve := func(c *llmhttp.Call) error { return c.Reserve(llmhttp.Estimate{Chat: ownChat()}) }
	reserveOther := func(c *llmhttp.Call) error { return c.Reserve(llmhttp.Estimate{Model: "m"}) }
	var kept llmhttp.Backend
	with := func(encoder llmhttp.ChatEncoder) func(c *llmhttp.Call) error {
		return func(c *llmhttp.Call) error {
			return c.Generate(encoder, func(ctx context.Context, b llmhttp.Backend) llm.ChatStream {
				kept = b
				return words(ctx, b)
			})
		}
	}
	reply := with(wholeText)
	ask := func(step func(*llmhttp.Call) error) func(c *llmhttp.Call) error {
		return func(c *llmhttp.Call) error {
			return c.Ask(func(context.Context, llmhttp.Backend) (llmhttp.Used, error) { return llmhttp.Used{}, step(c) })
		}
	}
	nothing := func(*llmhttp.Call) error { return nil }
	plainReply := func(c *llmhttp.Call) error {
		return c.Reply("", func(b []byte) ([]byte, error) { return append(b, "{}"...), nil })
	}
	type step = func(*llmhttp.Call) error
	for name, tt := range map[string]struct {
		steps   []step
		log     string // empty if the order is right
		reply   string
		records int
	}{
		"right":                    {[]step{reserve, reply}, "", "start words end", 1},
		"a stream":                 {[]step{reserve, with(textEncoder{llmhttp.EventStream()})}, "", "start words end", 1},
		"Ask in place of Generate": {[]step{reserve, ask(nothing), plainReply}, "", "{}", 1},
		"before Reserve":           {[]step{reply, reserve}, order, "", 0},
		"Reserve without a Chat":   {[]step{reserveOther, reply}, order, "", 0},
		"Reserve without a model": {[]step{func(c *llmhttp.Call) error {
			return c.Reserve(llmhttp.Estimate{Model: "m", Chat: new(llm.ChatRequest)})
		}}, "Missing required parameter", "", 0},
		"after Ask": {[]step{reserve, ask(nothing), reply}, order, "", 1},
		"in Ask":    {[]step{reserve, ask(reply)}, order, "", 1},
		"in Check": {[]step{reserve, func(c *llmhttp.Call) error {
			return c.Check(func(context.Context, llmhttp.Backend) error { return reply(c) })
		}}, order, "", 0},
		"twice":              {[]step{reserve, reply, reply}, order, "start words end", 1},
		"Reply after it":     {[]step{reserve, reply, plainReply}, "was called twice", "start words end", 1},
		"with a ReplyStream": {[]step{reserve, func(c *llmhttp.Call) error { c.Stream(llmhttp.EventStream(), nil); return nil }, reply}, order, "", 0},
		"no encoder":         {[]step{reserve, with(nil)}, "or Generate got none", "", 0},
		"no Content-Type":    {[]step{reserve, with(textEncoder{})}, "has no ContentType", "", 0},
		"no stream": {[]step{reserve, func(c *llmhttp.Call) error {
			return c.Generate(wholeText, func(context.Context, llmhttp.Backend) llm.ChatStream { return nil })
		}}, "nil", "", 1},
		"a Backend that is used after it": {[]step{reserve, reply, func(c *llmhttp.Call) error { kept.Chat(c.Context(), ownChat()); return nil }}, "used outside of", "start words end", 1},
	} {
		for _, ignore := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var log bytes.Buffer
				h, records, _ := newGenerating(llmhttp.Limits{}, &log, func(c *llmhttp.Call) error {
					for _, step := range tt.steps {
						if err := step(c); err != nil && !ignore {
							return err
						}
					}
					return nil
				})
				w := httptest.NewRecorder()
				serveOnce(h, w, "{}")
				assert.Len(t, *records, tt.records)
				if tt.reply != "" {
					assert.Equal(t, 200, w.Code)
					assert.Equal(t, tt.reply, w.Body.String())
				} else {
					assert.Contains(t, []int{400, 500}, w.Code, w.Body)
				}
				assert.Contains(t, log.String()+w.Body.String(), tt.log)
			})
		}
	}
}

// A panic of the function that Generate calls is a failure of the Backend, as in a chat.
func TestCall_GeneratePanics(t *testing.T) {
	h, records, seen := newGenerating(llmhttp.Limits{}, new(bytes.Buffer), generate(llmhttp.Estimate{Chat: ownChat()}, wholeText,
		func(context.Context, llmhttp.Backend) llm.ChatStream { panic("x") }))
	w := httptest.NewRecorder()
	serveOnce(h, w, "{}")
	assert.Equal(t, 500, w.Code)
	assert.Equal(t, llmhttp.ClassBackend, seen.summary.ErrorClass)
	assert.Len(t, *records, 1)
}
