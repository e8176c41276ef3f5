// Package modelreply has what packages llmfake and simulator share: how texts are cut and divided, and
// how chunks are sent with delays.
package modelreply

import (
	"context"
	"strings"
	"time"
)

// Words splits text into words, each with the white space before it. A word of more than maxLen
// bytes is split into several pieces, between characters; zero means that it is not.
func Words(text string, maxLen int) []string {
	var list []string
	start, inWord := 0, false
	for i, c := range text {
		isSpace := c == ' ' || c == '\n' || c == '\t'
		if inWord && (isSpace || maxLen > 0 && i-start >= maxLen) {
			list = append(list, text[start:i])
			start, inWord = i, false
		}
		inWord = inWord || !isSpace
	}
	if start < len(text) {
		list = append(list, text[start:])
	}
	return list
}

// CutAtStop returns the part of text before the first stop sequence, and that sequence. Without one
// it returns text and "". Empty sequences stop nothing.
func CutAtStop(text string, sequences []string) (head, stop string) {
	for _, s := range sequences {
		if i := strings.Index(text, s); i >= 0 && s != "" {
			text, stop = text[:i], s
		}
	}
	return text, stop
}

// Tail returns the end of text in which a stop sequence may have begun that the text after it
// completes.
func Tail(text string, sequences []string) string {
	longest := 1
	for _, s := range sequences {
		longest = max(longest, len(s))
	}
	return text[max(0, len(text)-longest+1):]
}

// Sleep waits for d. It reports false if ctx is done before that.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// A Sender yields the chunks of one reply, which are of type C.
type Sender[C any] struct {
	Ctx   context.Context
	Delay time.Duration // before each chunk
	Yield func(C, error) bool
}

// Send yields c after the delay. It reports whether the reply continues.
func (s *Sender[C]) Send(c C) bool { return s.Wait(s.Delay) && s.Yield(c, nil) }

// Wait waits for d and returns true. If the context is done first, it yields the cause and returns
// false.
func (s *Sender[C]) Wait(d time.Duration) bool {
	if Sleep(s.Ctx, d) {
		return true
	}
	var none C
	s.Yield(none, context.Cause(s.Ctx))
	return false
}
