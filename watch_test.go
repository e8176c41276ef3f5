package llmhttp

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A look that had to wait for the last write has nothing to say any more.
func TestNothingAfterTheReply(t *testing.T) {
	for phase, want := range map[phase]string{streaming: ": keep-alive\n", replied: ""} {
		w := httptest.NewRecorder()
		h := NewHandler(BackendFunc(nil), AllowAll("a"), nil)
		x := newExchange(h, w, httptest.NewRequest("POST", "/v1/chat/completions", nil))
		x.sse = &sseWriter{x: x}
		x.phase = phase
		x.watch.spoke, x.watch.wrote = -h.opts.KeepAlive, -h.opts.KeepAlive
		x.look()
		assert.Equal(t, want, w.Body.String())
		x.stopWatch()
	}
}
