// Runs of Stream: what they write, how they end, and what happens when their client leaves.

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

// A framework that calls back on goroutines of its own.
func runFramework(ctx context.Context, question string, onTool, onText func(string) error) error {
	var tools sync.WaitGroup
	tools.Go(func() { onTool("Looking at the weather.\n") })
	tools.Wait()
	return errors.Join(onText("An umbrella "), onText("will do."))
}

// An agent of a framework becomes a Backend.
func ExampleStream() {
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		question := req.Messages[len(req.Messages)-1].Content.Text()
		return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
			return runFramework(ctx, question, w.Progress, w.Text)
		})
	})
	reply, err := join.Collect(b.Chat(context.Background(), &llm.ChatRequest{
		Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("What do I need?")}},
	}))
	m := reply.Choices[0].Message
	fmt.Printf("%q %q %v\n", m.Reasoning, m.Content.Text(), err)
	// Output: "Looking at the weather.\n" "An umbrella will do." <nil>
}

// A tool shows how far it has come.
func ExampleProgress() {
	search := agent.Tool{Function: llm.Function{Name: "search"}, Run: func(ctx context.Context, _ string) (llm.Message, error) {
		for i := range 3 {
			if err := agent.Progress(ctx, fmt.Sprintf("%d of 3 libraries searched\n", i+1)); err != nil {
				return llm.Message{}, err
			}
		}
		return agent.Result("Found it."), nil
	}}
	m := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if len(req.Messages) > 1 {
			return []memory.Step{memory.Say("Here it is.")}
		}
		return []memory.Step{memory.Call("c1", "search", "{}")}
	}}
	b := agent.New(m, func(context.Context) ([]agent.Tool, error) { return []agent.Tool{search}, nil }, nil)
	reply, err := join.Collect(b.Chat(context.Background(), &llm.ChatRequest{
		Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Where is the book?")}},
	}))
	fmt.Print(reply.Choices[0].Message.Reasoning, reply.Choices[0].Message.Content.Text(), "\n", err, "\n")
	// Output:
	// 1 of 3 libraries searched
	// 2 of 3 libraries searched
	// 3 of 3 libraries searched
	// Here it is.
	// <nil>
}

func collect(t *testing.T, run func(ctx context.Context, w *agent.Writer) error) (*llm.ChatResponse, error) {
	t.Helper()
	return join.Collect(agent.Stream(t.Context(), nil, run))
}

// What a run writes on many goroutines is there once, whatever it writes afterwards.
func TestStream_Concurrent(t *testing.T) {
	var late *agent.Writer
	var lateCtx context.Context
	reply, err := collect(t, func(ctx context.Context, w *agent.Writer) error {
		late, lateCtx = w, ctx
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { assert.NoError(t, w.Text("a")) })
			all.Go(func() { assert.NoError(t, agent.Progress(ctx, "b")) })
			all.Go(func() {
				assert.NoError(t, w.Calls(llm.ToolCall{ID: fmt.Sprint("c", i), Function: llm.FunctionCall{Name: "f"}}))
			})
		}
		all.Wait()
		return errors.Join(w.Text(""), w.Progress(""), w.Calls())
	})
	require.NoError(t, err)
	m := reply.Choices[0].Message
	assert.Equal(t, strings.Repeat("a", 20), m.Content.Text())
	assert.Equal(t, strings.Repeat("b", 20), m.Reasoning)
	assert.Len(t, m.ToolCalls, 20)
	assert.Error(t, late.Text("late"))
	assert.Error(t, agent.Progress(lateCtx, "late"))
	assert.Error(t, lateCtx.Err(), "the context ends with the run")
	assert.NoError(t, agent.Progress(t.Context(), "no run"))
}

func TestStream_FinishReason(t *testing.T) {
	call := llm.ToolCall{ID: "c", Function: llm.FunctionCall{Name: "f"}}
	for want, run := range map[llm.FinishReason]func(w *agent.Writer) error{
		llm.FinishStop:      func(*agent.Writer) error { return nil },
		llm.FinishToolCalls: func(w *agent.Writer) error { return w.Calls(call) },
		llm.FinishLength: func(w *agent.Writer) error {
			w.Finish(llm.FinishLength)
			return w.Calls(call)
		},
		llm.FinishContentFilter: func(w *agent.Writer) error {
			w.Finish(llm.FinishLength)
			return w.Send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{FinishReason: llm.FinishContentFilter}}})
		},
	} {
		reply, err := collect(t, func(_ context.Context, w *agent.Writer) error { return run(w) })
		require.NoError(t, err)
		assert.Equal(t, want, reply.Choices[0].FinishReason)
	}

	// An agent of its own sends calls in chunks.
	reply, err := collect(t, func(_ context.Context, w *agent.Writer) error {
		delta := llm.Delta{ToolCalls: []llm.ToolCallDelta{{ID: call.ID, Type: call.Type, Function: call.Function}}}
		return w.Send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: delta}}})
	})
	require.NoError(t, err)
	assert.Equal(t, llm.FinishToolCalls, reply.Choices[0].FinishReason)
}

// Errors, panics and other ends of a run are those of the stream.
func TestStream_Ends(t *testing.T) {
	_, err := collect(t, func(context.Context, *agent.Writer) error { return errCause })
	assert.Equal(t, errCause, err)
	_, err = collect(t, func(context.Context, *agent.Writer) error { runtime.Goexit(); return nil })
	assert.ErrorContains(t, err, "Goexit")
	_, err = join.Collect(agent.Stream(t.Context(), nil, nil))
	assert.Error(t, err)

	for _, v := range []any{"oops", http.ErrAbortHandler} {
		func() {
			defer func() {
				got := recover()
				if v == http.ErrAbortHandler {
					assert.Equal(t, v, got)
					return
				}
				assert.Contains(t, got, "oops")
				assert.Contains(t, got, "stream_test.go", "the stack of the run")
			}()
			collect(t, func(context.Context, *agent.Writer) error { panic(v) })
			t.Error("no panic")
		}()
	}
}

// A reader that stops ends the run, and so does the end of the context.
func TestStream_ReaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, ended error
		for range agent.Stream(t.Context(), nil, func(ctx context.Context, w *agent.Writer) error {
			sent = w.Text("a")
			<-ctx.Done()
			ended = w.Text("b")
			return nil
		}) {
			break
		}
		assert.Error(t, sent, "the reader has stopped with this chunk")
		assert.Error(t, ended)

		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for _, opts := range []*agent.StreamOptions{nil, {FinishWithin: time.Hour}} {
			_, err := join.Collect(agent.Stream(ctx, opts, func(ctx context.Context, w *agent.Writer) error {
				cancel(errCause)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			assert.Equal(t, errCause, err, "a host has ended the context, and no client has left")
		}
	})
}

// A panic of the loop over a stream ends the run, whose goroutines must not wait for a reader.
func TestStream_ReaderPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		assert.PanicsWithValue(t, "x", func() {
			for range agent.Stream(t.Context(), nil, func(ctx context.Context, w *agent.Writer) error {
				errs = append(errs, w.Text("a"), w.Text("b"))
				assert.Error(t, ctx.Err())
				return nil
			}) {
				panic("x")
			}
		})
		synctest.Wait()
		if assert.Len(t, errs, 2) {
			assert.Error(t, errs[0])
			assert.Error(t, errs[1])
		}
	})
}

// A leftHost serves an agent, and has what is recorded.
type leftHost struct {
	url     string
	records chan llmhttp.UsageRecord
}

func newLeftHost(t *testing.T, b llmhttp.Backend) *leftHost {
	h := &leftHost{records: make(chan llmhttp.UsageRecord, 9)}
	server := httptest.NewServer(llmhttp.NewHandler(b, llmhttp.AllowAll(""), &llmhttp.Options{
		Usage: usageLog{memory.NewUsageStore(), h.records},
		Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
			return llmhttp.Cost{Output: llm.USD(float64(1 + r.Units.CompletionTokens))}, nil
		},
	}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// leave sends a chat, calls leaveNow when it may leave, and waits until the client has left.
func (h *leftHost) leave(t *testing.T, stream bool, mayLeave <-chan struct{}) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	body := fmt.Sprintf(`{"model":"m","stream":%t,"messages":[{"role":"user","content":"Hi"}]}`, stream)
	r, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	go func() {
		<-mayLeave
		leave()
	}()
	if res, err := http.DefaultClient.Do(r); err == nil {
		defer res.Body.Close()
		_, err = res.Body.Read(make([]byte, 1))
		for err == nil {
			_, err = res.Body.Read(make([]byte, 1<<10))
		}
	}
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// A run whose client has left is finished if the host wants that, and recorded once with its cost.
func TestBackend_FinishWithin(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			running, left, finished := make(chan struct{}), make(chan struct{}), false
			work := agent.Tool{Function: look.Function, Run: func(ctx context.Context, _ string) (llm.Message, error) {
				close(running)
				<-left
				if err := agent.Progress(ctx, "Nobody sees it.\n"); err != nil {
					return llm.Message{}, err
				}
				finished = true
				return agent.Result("done"), ctx.Err()
			}}
			m := model(append([]memory.Step{memory.Say("Wait. ")}, callLook...), answer)
			gone := make(chan struct{})
			b := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
				context.AfterFunc(ctx, func() { close(gone) })
				return agent.New(m, tools(work), &agent.Options{FinishWithin: time.Hour}).Chat(ctx, req)
			})
			h := newLeftHost(t, b)
			go func() {
				<-gone // the server knows it
				close(left)
			}()
			h.leave(t, stream, running)
			record := <-h.records
			assert.True(t, finished)
			assert.Len(t, m.requests, 2)
			assert.Equal(t, int64(30), record.Units.Tokens())
			assert.Equal(t, llm.USD(2*(1+5)), record.Cost.Total(), "each call by itself")
			assert.Equal(t, llmhttp.ClassCanceled, record.ErrorClass)
			assert.Empty(t, h.records)
		})
	}
}

// A run is not finished for ever, and not at all without the option.
func TestBackend_FinishWithin_Ends(t *testing.T) {
	for _, within := range []time.Duration{0, -1, time.Millisecond} {
		running := make(chan struct{})
		hang := agent.Tool{Function: look.Function, Run: func(ctx context.Context, _ string) (llm.Message, error) {
			close(running)
			<-ctx.Done()
			return llm.Message{}, ctx.Err()
		}}
		m := model(callLook, answer)
		h := newLeftHost(t, agent.New(m, tools(hang), &agent.Options{FinishWithin: within}))
		h.leave(t, true, running)
		record := <-h.records
		assert.Equal(t, int64(15), record.Units.Tokens())
		assert.Equal(t, llm.USD(6), record.Cost.Total())
		assert.Len(t, m.requests, 1)
		assert.Empty(t, h.records)
	}
}

// A call of the model that the client interrupts has used something: it is charged what is estimated.
func TestBackend_InterruptedCall(t *testing.T) {
	running := make(chan struct{})
	m := chatFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			if err := send(llm.TextChunk("Let me think about it. ")); err != nil {
				return err
			}
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
	})
	h := newLeftHost(t, agent.New(m, tools(look), nil))
	h.leave(t, true, running)
	record := <-h.records
	assert.True(t, record.Estimated)
	assert.Positive(t, record.Units.PromptTokens)
	assert.Positive(t, record.Units.CompletionTokens)
}
