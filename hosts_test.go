package llmhttp_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
)

// These tests make mistakes that hosts have made: see docs/hosts.md.

// A host redacts texts and forgets that there is more than chats.
func TestHosts_EmbeddingsAreRedacted(t *testing.T) {
	got := new(recordingBackend)
	h := formatHandler(llmhttp.FilterTexts(got, func(context.Context) llmhttp.TextFilter {
		return llmhttp.TextFilter{Request: llmhttp.NewTextReplacer("swordfish", "[hidden]").Request}
	}))
	w := serveFormat(h, "/v1/embeddings", `{"model":"m","input":["My password is swordfish."]}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Len(t, got.requests, 1)
	text, err := json.Marshal(got.requests[0])
	require.NoError(t, err)
	assert.Contains(t, string(text), "My password is [hidden].")
	w = serveFormat(h, "/v1/embeddings", `{"model":"m","input":[1,2,3]}`)
	assert.Equal(t, http.StatusBadRequest, w.Code, "what cannot be read is refused")
}

// A host puts a UsageBuffer in front of its store, and does not tell Serve.
func TestHosts_UsageSurvivesShutdown(t *testing.T) {
	store := new(usageLog)
	buffer := llmhttp.NewUsageBuffer(store, &llmhttp.UsageBufferOptions{BatchSize: 1000, Delay: time.Hour})
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{Usage: buffer})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- llmhttp.Serve(ctx, &http.Server{Handler: h}, h, nil, l) }()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+l.Addr().String()+chatPath, strings.NewReader(chatBody))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-demo")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	stop()
	require.NoError(t, <-ended)
	assert.Len(t, store.records(), 1)
}

// A host gives a model another name and forgets the price of that.
func TestHosts_AliasesAreNotFree(t *testing.T) {
	prices, err := pricing.Parse([]byte(`{"models": {"large": {"input": 3, "output": 15}}}`), nil)
	require.NoError(t, err)
	store := new(usageLog)
	key := testKey()
	key.Limits.Quota = llmhttp.Quota{Cost: llmhttp.MoneyUnit}
	h := startServer(t, config{usage: store, keys: keysFor(key), opts: llmhttp.Options{Price: prices.Price}})
	h.chat(withModel(chatBody, "best")).checkError(t, http.StatusNotFound)
	assert.Empty(t, store.records())

	h = startServer(t, config{usage: store, opts: llmhttp.Options{Price: prices.Price}}) // no Quota needs the price
	h.chat(withModel(chatBody, "best"))
	require.Len(t, store.records(), 1)
	assert.True(t, store.records()[0].Unpriced, "and the log says so")
	assert.Contains(t, h.log.String(), "best")
}

// The hosts of docs/hosts.md have no more lines than it says, without tests, except for the fake, which is one.
func TestHosts_Lines(t *testing.T) {
	text, err := os.ReadFile("docs/hosts.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\w+): .* \| \d+ \| (\d+) \| .*\(\.\./([^)]*)\) \|$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 5)
	for _, row := range rows {
		files := []string{row[3]}
		if !strings.HasSuffix(row[3], ".go") {
			files, err = filepath.Glob(row[3] + "/*.go")
			require.NoError(t, err)
			files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		}
		require.NotEmpty(t, files, row[3])
		lines := 0
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			lines += strings.Count(string(code), "\n")
		}
		t.Logf("%s: %d lines", row[1], lines)
		most, err := strconv.Atoi(row[2])
		require.NoError(t, err)
		assert.LessOrEqual(t, lines, most, row[1])
	}
}
