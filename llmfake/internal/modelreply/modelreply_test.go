package modelreply_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

func TestWords(t *testing.T) {
	for _, c := range []struct {
		text   string
		maxLen int
		want   []string
	}{
		{"", 0, nil},
		{" ", 0, []string{" "}},
		{"one", 0, []string{"one"}},
		{"one  two\nthree ", 0, []string{"one", "  two", "\nthree", " "}},
		{"abcdef gh", 3, []string{"abc", "def", " gh"}},
		{"éééé", 3, []string{"éé", "éé"}},
		{"      a", 3, []string{"      a"}},
	} {
		got := modelreply.Words(c.text, c.maxLen)
		assert.Equal(t, c.want, got, c.text)
		assert.Equal(t, c.text, strings.Join(got, ""))
	}
}

func TestCutAtStop(t *testing.T) {
	for _, c := range []struct {
		sequences  []string
		head, stop string
	}{
		{nil, "one two three", ""},
		{[]string{""}, "one two three", ""},
		{[]string{"four"}, "one two three", ""},
		{[]string{"three", "two"}, "one ", "two"},
		{[]string{"two", "three"}, "one ", "two"},
		{[]string{"one"}, "", "one"},
	} {
		head, stop := modelreply.CutAtStop("one two three", c.sequences)
		assert.Equal(t, c.head, head, c.sequences)
		assert.Equal(t, c.stop, stop, c.sequences)
	}
}

func TestTail(t *testing.T) {
	assert.Equal(t, "", modelreply.Tail("text", nil))
	assert.Equal(t, "", modelreply.Tail("text", []string{"a"}))
	assert.Equal(t, "xt", modelreply.Tail("text", []string{"a", "abc"}))
	assert.Equal(t, "text", modelreply.Tail("text", []string{"longer than the text"}))
}

func TestSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := errors.New("the client has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(left) })
		var got []string
		var failure error
		s := modelreply.Sender[string]{Ctx: ctx, Delay: 2 * time.Second, Yield: func(c string, err error) bool {
			got, failure = append(got, c), err
			return err == nil && c != "last"
		}}
		assert.True(t, s.Send("one"))
		assert.False(t, s.Send("last"))
		assert.False(t, s.Send("late"))
		assert.Equal(t, []string{"one", "last", ""}, got)
		assert.Equal(t, left, failure)
		assert.False(t, s.Wait(0))
		assert.False(t, modelreply.Sleep(ctx, time.Hour))
		assert.True(t, modelreply.Sleep(t.Context(), -1))
	})
}
