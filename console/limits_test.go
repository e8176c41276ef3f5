package console_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// limitOf returns what the page of a key says about the use of a limit.
func limitOf(t *testing.T, v *visitor, id, name string) string {
	t.Helper()
	limit := findPart(t, v.get("key?id="+id).body, ">"+name+"</span>", "</div>")
	return findPart(t, limit, `<span class="sub">`, "</span>")
}

func TestLimits_Used(t *testing.T) {
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{Limits: llmhttp.Limits{
		Requests: llmhttp.Rate{N: 100, Per: 24 * time.Hour}, Tokens: llmhttp.Rate{N: 1000, Per: 24 * time.Hour}, Quota: llmhttp.Quota{Cost: llm.USD(2)},
	}})
	require.Equal(t, http.StatusOK, h.chat(t, secret))
	h.mustRecord(t, record("1", time.Now(), info.Account, info.ID, "m", 1_000_000))
	v := h.newAdmin(t)
	assert.Contains(t, limitOf(t, v, info.ID, "requests"), "1 of 100 used, free again in ")
	assert.Regexp(t, `^\d+ of 1\x{202f}000 used`, limitOf(t, v, info.ID, "tokens"))
	assert.Contains(t, limitOf(t, v, info.ID, "quota"), "$2.00 of $2.00 used since ")
}

// The page counts the requests of a key that are in progress in this process.
func TestLimits_Concurrent(t *testing.T) {
	h := newHost(t, nil)
	h.backend.Delay = 10 * time.Millisecond
	limits := llmhttp.Limits{Concurrent: 8}
	info, secret := h.mustCreate(t, manage.KeyParams{Limits: limits})
	other, _ := h.mustCreate(t, manage.KeyParams{Limits: limits})
	v := h.newAdmin(t)
	assert.Equal(t, "0 of 8 used, by this process", limitOf(t, v, info.ID, "concurrent"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := strings.Replace(chatBody, "Hello there!", strings.Repeat("word ", 20_000), 1)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/v1/chat/completions", strings.NewReader(strings.Replace(body, "{", `{"stream": true, `, 1)))
	require.NoError(t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {"application/json"}}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "1 of 8 used, by this process", limitOf(t, v, info.ID, "concurrent"))
	assert.Equal(t, "0 of 8 used, by this process", limitOf(t, v, other.ID, "concurrent"))
	cancel()
	eventually(t, func() bool { return limitOf(t, v, info.ID, "concurrent") == "0 of 8 used, by this process" }, "the request ends")
}

// A fleetLimiter counts the requests of several processes.
type fleetLimiter struct{ llmhttp.ConcurrencyLimiter }

func (fleetLimiter) Concurrent(_ context.Context, s llmhttp.SubjectID) (int64, error) {
	return int64(len(s.ID)), nil
}

func (fleetLimiter) Take(_ context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	return make([]llmhttp.BucketLevel, len(draws)), nil
}

func TestLimits_ConcurrencyCounter(t *testing.T) {
	h := newHost(t, func(_ *host, o *console.Options) { o.Limiter = fleetLimiter{} })
	info, _ := h.mustCreate(t, manage.KeyParams{Limits: llmhttp.Limits{Concurrent: 50}})
	assert.Equal(t, "24 of 50 used", limitOf(t, h.newAdmin(t), info.ID, "concurrent"), "the length of the ID")
}
