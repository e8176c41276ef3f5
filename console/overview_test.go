package console_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
)

// brokenBackend fails every chat.
type brokenBackend struct{}

func (brokenBackend) Chat(context.Context, *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		yield(nil, &llm.Error{Status: http.StatusBadGateway, Code: "marker", Message: "marker text"})
	}
}

// The overview shows the targets of a Router that serves requests, and the
// circuit breaker that opens when one of them fails.
func TestOverview_Router(t *testing.T) {
	router, err := route.New([]route.Route{{Model: "demo-*", Strategy: route.InOrder, Targets: []route.Target{
		{Name: "rack-1", Backend: brokenBackend{}}, {Name: "rack-2", Backend: memory.Echo()},
	}}}, &route.Options{Failures: 2})
	require.NoError(t, err)
	h := newHostWithBackend(t, memory.NewKeyStore(), memory.NewUsageStore(), router, func(_ *host, o *console.Options) { o.Targets = router.Status })
	v := h.newAdmin(t)
	row := func(target string) string {
		return findPart(t, v.get("overview").body, `<th scope="row">`+target+"</th>", "</tr>")
	}
	assert.Contains(t, row("rack-1"), `<span class="badge closed">closed</span>`)

	_, first := h.mustCreate(t, manage.KeyParams{})
	_, second := h.mustCreate(t, manage.KeyParams{})
	for range 2 {
		require.Equal(t, http.StatusOK, h.chat(t, first))
		require.Equal(t, http.StatusOK, h.chat(t, second))
	}
	broken, working := row("rack-1"), row("rack-2")
	assert.Contains(t, broken, `<span class="badge open">open</span>`)
	assert.Contains(t, broken, "demo-chat", "the breaker is that of a model")
	assert.Contains(t, broken, "next try in")
	assert.Contains(t, broken, "502 marker")
	assert.NotContains(t, broken, "marker text")
	assert.Contains(t, working, `<span class="badge closed">closed</span>`)
	assert.Contains(t, working, `<td class="number">4</td><td class="number">0</td>`, "four tries and no failure")
}
