package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A wordEncoder is a ChatEncoder that appends a word for each call. It fails at the text "fail".
type wordEncoder struct{ framing Framing }

func (e *wordEncoder) Framing() Framing { return e.framing }

func (e *wordEncoder) AppendStart(b []byte, s *ReplyStart) []byte {
	return fmt.Appendf(b, "start(%s,%s,%d,%d)", s.ID, s.Model, s.Created, s.PromptTokens)
}

func (e *wordEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	switch {
	case choice.Delta.Content == "fail":
		return append(b, "half a chunk"...), errors.New("encoder")
	case len(choice.Delta.Content) > 100:
		return fmt.Appendf(b, " %d bytes", len(choice.Delta.Content)), nil
	}
	return fmt.Appendf(b, " %s%s%s", choice.Delta.Role, choice.Delta.Content, choice.FinishReason), nil
}

func (e *wordEncoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	return fmt.Appendf(b, " end(%d,%d)", u.TotalTokens, len(extra)), nil
}

func (e *wordEncoder) AppendFailure(b []byte, err *llm.Error) []byte {
	return fmt.Appendf(b, " failure(%s)", err.Message)
}

// newPipeline returns the pipeline of a request for one choice.
func newPipeline(f Framing) *chatPipeline {
	p := &chatPipeline{
		encoder: &wordEncoder{f}, whole: f.Whole, maxReply: 1 << 20,
		cred:  &credential{r: httptest.NewRequest("POST", "/", nil), secret: "sk-secret-key-1234"},
		start: ReplyStart{Model: "asked", Created: 7, PromptTokens: 3},
	}
	p.order.ChoiceLimit, p.order.Sink = 1, p
	return p
}

// Chunks become the bytes of a stream as they arrive, and those of a whole reply at its end.
func TestChatPipeline(t *testing.T) {
	chunk := func(text string) *llm.ChatChunk {
		c := llm.TextChunk(text)
		c.ID, c.Model = "id", "served"
		return c
	}
	const start = "start(id,served,7,3) assistant"
	for name, test := range map[string]struct {
		framing Framing
		chunks  []*llm.ChatChunk
		want    []string // what each chunk and then the end appends
		wantErr string   // of the last chunk
	}{
		"stream":                     {Framing{}, []*llm.ChatChunk{chunk("a"), chunk("b")}, []string{start + " a", " b", " stop end(9,0)"}, ""},
		"whole":                      {Framing{Whole: true}, []*llm.ChatChunk{chunk("a"), chunk("b")}, []string{"", "", start + " a b stop end(9,0)"}, ""},
		"without chunks":             {Framing{}, nil, []string{"start(,asked,7,3) assistant stop end(9,0)"}, ""},
		"a character in two pieces":  {Framing{}, []*llm.ChatChunk{chunk("\xc3"), chunk("\xa4")}, []string{start, " ä", " stop end(9,0)"}, ""},
		"a long text of a stream":    {Framing{}, []*llm.ChatChunk{chunk(strings.Repeat("x", bounds.DeltaText+101))}, []string{start + " 8192 bytes 101 bytes", " stop end(9,0)"}, ""},
		"a long text of a reply":     {Framing{Whole: true}, []*llm.ChatChunk{chunk(strings.Repeat("x", bounds.DeltaText+101))}, []string{"", start + " 8293 bytes stop end(9,0)"}, ""},
		"the encoder fails":          {Framing{}, []*llm.ChatChunk{chunk("a"), chunk("fail")}, []string{start + " a", ""}, "encoder"},
		"too large":                  {Framing{}, []*llm.ChatChunk{chunk(strings.Repeat("x", 1<<20+1))}, []string{""}, "The reply of the model is too large"},
		"a nil chunk, which is none": {Framing{}, []*llm.ChatChunk{nil, chunk("a")}, []string{"", start + " a", " stop end(9,0)"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline(test.framing)
			var got []string
			step := func(f func(out *exchange.Buffer) error) (err error) {
				out := new(exchange.Buffer)
				if test.framing.Whole {
					err = f(nil)
				} else {
					err = f(out)
				}
				got = append(got, string(out.B))
				return err
			}
			var err error
			for _, c := range test.chunks {
				require.NoError(t, err)
				err = step(func(out *exchange.Buffer) error { return p.receive(c, out) })
			}
			if test.wantErr != "" {
				assert.ErrorContains(t, err, test.wantErr)
				assert.Equal(t, test.want, got)
				return
			}
			require.NoError(t, err)
			end := new(exchange.Buffer)
			if test.framing.Whole {
				require.NoError(t, p.complete(nil))
			} else {
				require.NoError(t, p.complete(end))
			}
			b, err := p.appendEnd(end.B, &llm.Usage{TotalTokens: 9}, p.order.EndExtra())
			require.NoError(t, err)
			assert.Equal(t, test.want, append(got, string(b)))
			assert.Equal(t, []llm.FinishReason{llm.FinishStop}, p.finishReasons())
			assert.Nil(t, p.encoder, "the reply can be garbage-collected")
			assert.Empty(t, p.AppendFailure(nil, errors.New("late")))
		})
	}
}

// The exchange starts a stream early, ends it with a failure, and never starts it twice.
func TestChatPipeline_Source(t *testing.T) {
	p := newPipeline(Framing{StartsEarly: true})
	assert.False(t, p.HasStarted())
	assert.Equal(t, "start(,asked,7,3)", string(p.AppendStart(nil)))
	assert.True(t, p.HasStarted())
	out := new(exchange.Buffer)
	require.NoError(t, p.receive(llm.TextChunk("a"), out))
	assert.Equal(t, " assistant a", string(out.B))
	assert.Equal(t, " failure(my [redacted])", string(p.AppendFailure(nil, llm.Errorf(500, "", "my sk-secret-key-1234"))))
}

// The statistics of chunks tell the first and the last one with a token.
func TestChunkStats(t *testing.T) {
	var s chunkStats
	for i, hasToken := range []bool{false, true, true, false} {
		s.add(hasToken, time.Duration(i+1))
	}
	assert.Equal(t, chunkStats{count: 4, first: 1, firstToken: 2, lastToken: 3}, s)
}

// A gate that was closed admits nothing more, and tells why the stream ended.
func TestChunkGate(t *testing.T) {
	failed := errors.New("failed")
	for err, want := range map[error]error{nil: nil, errReplyComplete: nil, failed: failed} {
		g := chunkGate{err: err}
		assert.Equal(t, want, g.close())
		assert.Equal(t, want, g.close())
		assert.Error(t, g.err)
	}
}

// A savingEncoder stores replies.
type savingEncoder struct{ wordEncoder }

func (savingEncoder) SaveReply(*llm.Usage, llm.Extra) func(context.Context) error {
	return func(context.Context) error { return nil }
}
func (savingEncoder) SaveFailed(err error) error { return err }

func TestChatPipeline_SaveFunc(t *testing.T) {
	p := newPipeline(Framing{})
	assert.Nil(t, p.saveFunc(nil, nil))
	p.encoder = &savingEncoder{}
	assert.NotNil(t, p.saveFunc(nil, nil))
}
