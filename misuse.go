package llmhttp

import (
	"errors"
	"log/slog"
)

// A misuse is a set of mistakes of the host that no reply tells of: each is
// logged once for a request.
type misuse uint

const (
	misuseChoice misuse = 1 << iota
	misuseNilChunk
	misuseAfterFinish
	misuseUsage
	misuseAfterReturn
	misuseExtra
	misuseCompletion
	misuseNoFlush
)

// misuses has the log message of each misuse, and what to do about it.
var misuses = []struct {
	misuse  misuse
	message string
	advice  error
}{
	{misuseChoice, "the Backend yielded choices that were not asked for",
		errors.New("llmhttp: they are dropped: choice indices must be less than ChatRequest.Choices")},
	{misuseNilChunk, "the Backend yielded a nil chunk",
		errors.New("llmhttp: it is ignored: yield a chunk or an error")},
	{misuseAfterFinish, "the Backend yielded content of a choice after its FinishReason",
		errors.New("llmhttp: it is dropped: set FinishReason in the last chunk of the choice only")},
	{misuseUsage, "the Backend reported usages that contradict each other",
		errors.New("llmhttp: the last one counts: Usage is the total of the request and not that of a chunk")},
	{misuseAfterReturn, "the Backend called yield after its stream had returned",
		errors.New("llmhttp: the chunk is dropped: wait for goroutines that yield before the function of the stream returns")},
	{misuseExtra, "the Backend set members of Extra beside the usage that are not JSON",
		errors.New("llmhttp: they are dropped: set valid JSON, such as null instead of NaN")},
	{misuseCompletion, "the Backend exceeded the token limit of the request",
		errors.New("llmhttp: the text is cut: pass ChatRequest.TokenLimit on to the model")},
	{misuseNoFlush, "a stream is buffered",
		errors.New("llmhttp: the ResponseWriter of a middleware cannot be flushed: it needs a method Flush or Unwrap")},
}

// warn logs those of set that were not logged yet. It is called with the
// response's mu held.
func (l *requestLog) warn(set misuse) {
	set &^= l.warned
	l.warned |= set
	for _, m := range misuses {
		if set&m.misuse != 0 {
			l.print(slog.LevelWarn, m.message, m.advice)
		}
	}
}
