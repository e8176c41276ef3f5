package route_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// sayRole returns a step whose only chunk announces the role.
func sayRole(id string) step {
	return sayChunk(llm.ChatChunk{ID: id, Choices: []llm.ChunkChoice{{Delta: llm.Delta{Role: llm.RoleAssistant}}}})
}

func TestChat_NoFallbackAfterContent(t *testing.T) {
	delta := func(d llm.Delta) step {
		return sayChunk(llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}})
	}
	extra := func(value string) llm.Extra { return llm.Extra{"x": json.RawMessage(value)} }
	for name, test := range map[string]struct {
		first step
		begun bool
	}{
		"text":            {say("x"), true},
		"reasoning":       {delta(llm.Delta{Reasoning: "x"}), true},
		"refusal":         {delta(llm.Delta{Refusal: "x"}), true},
		"details":         {delta(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Data: "x"}}}), true},
		"tool call":       {delta(llm.Delta{ToolCalls: []llm.ToolCallDelta{{ID: "1"}}}), true},
		"finish reason":   {sayChunk(llm.ChatChunk{Choices: []llm.ChunkChoice{{FinishReason: llm.FinishStop}}}), true},
		"usage":           {sayChunk(llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 1}}), true},
		"extra of delta":  {delta(llm.Delta{Extra: extra(`"no"`)}), true},
		"extra of choice": {sayChunk(llm.ChatChunk{Choices: []llm.ChunkChoice{{Extra: extra(`{}`)}}}), true},
		"role, then text": {sequence(sayRole(""), say("x")), true},
		"17 roles":        {sequence(slices.Repeat([]step{sayRole("")}, 17)...), true},
		"role":            {sayRole(""), false},
		"empty text":      {say(""), false},
		"null extra":      {delta(llm.Delta{Extra: extra(`null`)}), false},
		"two roles":       {sequence(sayRole(""), sayRole("")), false},
		"no choice":       {sayChunk(llm.ChatChunk{Extra: extra("1")}), false},
		"nil chunk":       {func(_ context.Context, yield yieldFunc) { yield(nil, nil) }, false},
		"no chunk":        {sequence(), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{llm.Errorf(500, "", "x"), llm.Errorf(429, "", "x"), errDial} {
				bad, good := newFake(sequence(test.first, fail(err))), newFake(say("good"))
				r := newInOrderRouter(t, nil, bad, good)
				text, got := ask(t.Context(), r)
				if test.begun {
					assert.ErrorIs(t, got, err)
					assert.Zero(t, good.calls.Load())
					e, _ := err.(*llm.Error)
					assert.Equal(t, e == nil || e.Status != 429, r.Status()[0].Failures == 1)
				} else {
					require.NoError(t, got)
					assert.Equal(t, "good", text)
				}
				assert.Equal(t, int64(1), bad.calls.Load())
			}
		})
	}
}

// A target whose stream has no chunk has failed, and another one is tried.
func TestChat_NoChunk(t *testing.T) {
	r := newInOrderRouter(t, nil, newFake(sequence()), newFake(say("good")))
	text, err := ask(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, "good", text)
	assert.EqualValues(t, 1, r.Status()[0].Failures)

	r = newInOrderRouter(t, nil, newFake(sequence()))
	_, err = ask(t.Context(), r)
	assert.ErrorContains(t, err, "without a chunk")
}

// The first target fails after a chunk that was held back, which the client must
// not get.
func TestChat_HeldChunks(t *testing.T) {
	for name, test := range map[string]struct {
		step step
		take int // chunks until the client leaves
		want []string
	}{
		"before text":   {sequence(sayRole("1"), sayRole("2"), say("x", "y")), 9, []string{"1", "2", "", ""}},
		"are a reply":   {sequence(sayRole("1"), sayRole("2")), 9, []string{"1", "2"}},
		"client leaves": {sequence(sayRole("1"), sayRole("2"), say("x")), 1, []string{"1"}},
		"leaves at end": {sequence(sayRole("1"), sayRole("2")), 1, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newInOrderRouter(t, nil, newFake(sequence(sayRole("0"), fail(errDial))), newFake(test.step))
			var ids []string
			for c, err := range r.Chat(t.Context(), newRequest("m")) {
				require.NoError(t, err)
				ids = append(ids, c.ID)
				if len(ids) == test.take {
					break
				}
			}
			assert.Equal(t, test.want, ids)
			assert.Zero(t, r.Status()[1].InFlight)
		})
	}
}

func TestChat_IgnoresChunksAfterTheEnd(t *testing.T) {
	t.Run("after an error", func(t *testing.T) {
		goesOn := func(_ context.Context, yield yieldFunc) {
			yield(nil, errDial)
			yield(llm.TextChunk("x"), nil)
			yield(nil, nil)
		}
		assert.Equal(t, "b", askTimes(t, newInOrderRouter(t, nil, newFake(goesOn), newFake(say("b"))), 1))
	})
	t.Run("after the client left", func(t *testing.T) {
		goesOn := func(_ context.Context, yield yieldFunc) {
			for range 3 {
				yield(llm.TextChunk("x"), nil)
			}
			yield(nil, errDial)
		}
		chunks := 0
		r := newInOrderRouter(t, nil, newFake(goesOn))
		r.Chat(t.Context(), newRequest("m"))(func(*llm.ChatChunk, error) bool { chunks++; return false })
		assert.Equal(t, 1, chunks)
	})
}

// Chunks that a target yields after its try has ended do not reach the client, even
// while another target answers.
func TestChat_TargetYieldsAfterItsTry(t *testing.T) {
	var late yieldFunc
	var wg sync.WaitGroup
	keep := func(_ context.Context, yield yieldFunc) {
		late = yield
		yield(nil, errDial)
	}
	answer := func(_ context.Context, yield yieldFunc) {
		if !yield(llm.TextChunk("b"), nil) {
			return
		}
		for range 100 {
			wg.Go(func() { assert.False(t, late(llm.TextChunk("late"), nil)) })
		}
		assert.False(t, late(nil, errDial))
		wg.Wait()
		yield(llm.TextChunk("b"), nil)
	}
	assert.Equal(t, "bb", askTimes(t, newInOrderRouter(t, nil, newFake(keep), newFake(answer)), 1))
}
