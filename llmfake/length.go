// Where the limits of a request cut its reply.

package llmfake

import (
	"math"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// A length tells where a choice ends: at the token limit or at a stop sequence of its request. The
// zero length has no token yet.
type length struct {
	tokens int
	tail   string // the end of the text, which may begin a stop sequence
	over   bool   // the choice gets no more content
}

// cut returns the part of s that a model would generate next. isText tells whether stop sequences
// apply to s.
func (p *player) cut(s string, isText bool) string {
	l := &p.length
	if l.over {
		return ""
	}
	end := choiceEnd{reason: llm.FinishStop}
	head := s
	if isText {
		// What was sent of a stop sequence before s cannot be taken back.
		before, stop := modelreply.CutAtStop(l.tail+s, p.chat.Stop)
		if stop != "" {
			head, end.stop = s[:max(0, len(before)-len(l.tail))], stop
		}
		l.tail = modelreply.Tail(l.tail+s, p.chat.Stop)
	}
	limit, ok := p.chat.TokenLimit()
	if !ok {
		limit = math.MaxInt
	}
	cut, n := simulator.CutTokens(head, limit-l.tokens)
	l.tokens += n
	if len(cut) < len(head) {
		end = choiceEnd{reason: llm.FinishLength}
	}
	if end.stop != "" || end.reason == llm.FinishLength {
		l.over = true
		for _, i := range p.indices() {
			*p.endOf(i) = end
		}
	}
	return cut
}

// maxWord bounds the pieces of a text, whose words may be long, as in languages without spaces.
const maxWord = 48

// sendText sends a text word by word, with a delay before each. delta returns the delta of a word.
func (p *player) sendText(s string, delay time.Duration, isText bool, delta func(word string) llm.Delta) bool {
	if p.chat == nil {
		return p.send(delta(s))
	}
	for _, word := range modelreply.Words(p.cut(s, isText), maxWord) {
		if !p.wait(delay) || !p.send(delta(word)) {
			return false
		}
	}
	return true
}
