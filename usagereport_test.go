package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// These tests check what is recorded of the usage that Backends report.

func usageOf(prompt, completion int) llm.Usage {
	return llm.Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion}
}

// chunkWithUsage returns a chunk that has text and usage.
func chunkWithUsage(text string, u llm.Usage) *llm.ChatChunk {
	c := llm.TextChunk(text)
	c.Usage = &u
	return c
}

// A Backend may report usage in chunks, by ReportUsage, or both.
func TestReportUsage_Chat(t *testing.T) {
	type key struct{}
	report := llm.ReportUsage
	tests := map[string]struct {
		serve     func(ctx context.Context, yield yieldFunc)
		want      llm.Usage
		estimated bool
		logged    string
	}{
		"before a chunk": {serve: func(ctx context.Context, yield yieldFunc) {
			report(ctx, usageOf(7, 3))
			yield(llm.TextChunk("one"), nil)
		}, want: usageOf(7, 3)},
		"without a chunk": {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, usageOf(7, 3)) }, want: usageOf(7, 3)},
		"without a total": {serve: func(ctx context.Context, _ yieldFunc) {
			report(ctx, llm.Usage{PromptTokens: 7, CompletionTokens: 3})
		}, want: usageOf(7, 3)},
		"a zero":             {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, llm.Usage{}) }, want: usageOf(0, 0)},
		"a running total":    {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, usageOf(7, 3)); report(ctx, usageOf(20, 9)) }, want: usageOf(20, 9)},
		"the last of equals": {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, usageOf(7, 3)); report(ctx, usageOf(6, 4)) }, want: usageOf(6, 4)},
		"not less":           {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, usageOf(7, 3)); report(ctx, usageOf(5, 4)) }, want: usageOf(7, 3)},
		"less by overflow":   {serve: func(ctx context.Context, _ yieldFunc) { report(ctx, usageOf(7, 3)); report(ctx, usageOf(-5, -4)) }, want: usageOf(7, 3)},
		"more than a chunk": {serve: func(ctx context.Context, yield yieldFunc) {
			yield(chunkWithUsage("one", usageOf(7, 3)), nil)
			report(ctx, usageOf(9, 9))
		}, want: usageOf(9, 9)},
		"less than a chunk": {serve: func(ctx context.Context, yield yieldFunc) {
			yield(chunkWithUsage("one", usageOf(7, 3)), nil)
			report(ctx, usageOf(1, 1))
		}, want: usageOf(7, 3)},
		"less in a chunk": {serve: func(ctx context.Context, yield yieldFunc) {
			report(ctx, usageOf(9, 9))
			yield(chunkWithUsage("one", usageOf(7, 3)), nil)
		}, want: usageOf(7, 3)},
		"a derived context": {serve: func(ctx context.Context, _ yieldFunc) {
			report(context.WithoutCancel(context.WithValue(ctx, key{}, 1)), usageOf(7, 3))
		}, want: usageOf(7, 3)},
		"another context": {serve: func(_ context.Context, yield yieldFunc) {
			report(context.Background(), usageOf(7, 3))
			yield(llm.TextChunk(""), nil)
		}, want: usageOf(4, 0), estimated: true},
		"concurrently": {serve: func(ctx context.Context, _ yieldFunc) {
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() { report(ctx, usageOf(i, 1)) })
			}
			all.Wait()
		}, want: usageOf(19, 1)},
		"before a panic": {serve: func(ctx context.Context, yield yieldFunc) {
			yield(llm.TextChunk("one"), nil)
			report(ctx, usageOf(7, 3))
			panic("boom")
		}, want: usageOf(7, 3)},
	}
	for name, tt := range tests {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: streamBackend(tt.serve), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}})
				s.chat(body)
				record := s.record()
				assert.Equal(t, llmhttp.UnitsOf(tt.want), record.Units)
				assert.Equal(t, tt.estimated, record.Estimated)
				assert.NotContains(t, s.log.String(), "reported usage after")
			})
		}
	}
}

// Usage that comes when nobody reads any more is recorded: when yield has returned false,
// and when the client has left.
func TestReportUsage_NobodyReads(t *testing.T) {
	for name, finish := range map[string]func(ctx context.Context, yield yieldFunc){
		"reported": func(ctx context.Context, _ yieldFunc) { llm.ReportUsage(ctx, usageOf(50000, 100000)) },
		"yielded": func(_ context.Context, yield yieldFunc) {
			yield(&llm.ChatChunk{Usage: new(usageOf(50000, 100000))}, nil)
		},
	} {
		for mode, body := range chatModes {
			t.Run("client has left/"+name+"/"+mode, func(t *testing.T) {
				checkNoLeaks(t)
				ctx, leave := context.WithCancel(t.Context())
				s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
					yield(llm.TextChunk("one"), nil)
					leave()
					<-ctx.Done()
					for yield(llm.TextChunk(strings.Repeat("x", 1<<20)), nil) && mode == "stream" {
					}
					after, left := llm.ClientLeft(ctx)
					assert.True(t, left)
					assert.NoError(t, after.Err())
					assert.Equal(t, llmhttp.RequestIDFrom(ctx), llmhttp.RequestIDFrom(after))
					finish(after, yield)
				})})
				if resp, err := s.open(ctx, "POST", chatPath, body); err == nil {
					resp.Body.Close()
				}
				record := s.record()
				assert.Equal(t, llmhttp.UnitsOf(usageOf(50000, 100000)), record.Units)
				assert.False(t, record.Estimated)
				assert.NotContains(t, s.log.String(), "WARN")
			})
		}
	}
	t.Run("yield has returned false", func(t *testing.T) {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{MaxCompletionTokens: 1}), backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			for yield(llm.TextChunk("many words "), nil) {
			}
			_, left := llm.ClientLeft(ctx)
			assert.False(t, left, "the client waits for the end of the reply")
			llm.ReportUsage(ctx, usageOf(50000, 100000))
		})})
		assert.Equal(t, 200, s.chat(chatBody).StatusCode)
		assert.Equal(t, llmhttp.UnitsOf(usageOf(50000, 100000)), s.record().Units)
	})
}

func TestReportUsage_OtherEndpoints(t *testing.T) {
	report := func(ctx context.Context) { llm.ReportUsage(ctx, usageOf(70, 30)) }
	own, spoken := usageOf(7, 3), usageOf(70, 30)
	spoken.CompletionTokensDetails.AudioTokens = 30
	for name, tt := range map[string]struct {
		path, body string
		backend    *stubBackend
		want       llm.Usage
	}{
		"images": {imagesPath, imageBody, &stubBackend{images: func(ctx context.Context, _ *llm.ImageRequest) (*llm.ImageResponse, error) {
			report(ctx)
			return &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}}}, nil
		}}, usageOf(70, 30)},
		"images that fail": {imagesPath, imageBody, &stubBackend{images: func(ctx context.Context, _ *llm.ImageRequest) (*llm.ImageResponse, error) {
			report(ctx)
			return nil, errCause
		}}, usageOf(70, 30)},
		"images that return another": {imagesPath, imageBody, &stubBackend{images: func(ctx context.Context, _ *llm.ImageRequest) (*llm.ImageResponse, error) {
			report(ctx)
			return &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}}, Usage: &own}, nil
		}}, own},
		"embeddings": {embeddingsPath, embeddingBody, &stubBackend{embed: func(ctx context.Context, _ *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			report(ctx)
			return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil
		}}, usageOf(70, 30)},
		"speech": {speechPath, speechBody, &stubBackend{speak: func(ctx context.Context, _ *audio.SpeechRequest) audio.SpeechStream {
			return func(yield func(*audio.SpeechChunk, error) bool) {
				yield(&audio.SpeechChunk{Audio: []byte("a")}, nil)
				report(ctx)
			}
		}}, spoken},
		"speech that fails": {speechPath, speechBody, &stubBackend{speak: func(ctx context.Context, _ *audio.SpeechRequest) audio.SpeechStream {
			report(ctx)
			return failingSpeech(errCause)
		}}, spoken},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: tt.backend})
			s.do("POST", tt.path, tt.body)
			assert.Equal(t, llmhttp.UnitsOf(tt.want), tokensOf(s.record().Units))
		})
	}
}

// A report after the Backend has returned is ignored, and logged.
func TestReportUsage_AfterReturn(t *testing.T) {
	var late context.Context
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		late = ctx
		yield(chunkWithUsage("one", usageOf(7, 3)), nil)
	})})
	s.chat(chatBody)
	s.summary()
	llm.ReportUsage(late, usageOf(70, 30))
	assert.Contains(t, s.log.String(), "reported usage after it")
	assert.Equal(t, llmhttp.UnitsOf(usageOf(7, 3)), s.record().Units)
	after, left := llm.ClientLeft(late)
	assert.Error(t, after.Err())
	assert.False(t, left)
}

// The context after the client has left ends with the request, and when the Handler ends it.
func TestClientLeft_End(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(h *llmhttp.Handler)
		want time.Duration // after the client has left
	}{
		"Shutdown": {func(h *llmhttp.Handler) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			h.Shutdown(ctx)
		}, time.Second},
		"Options.Bounds.Timeout": {func(*llmhttp.Handler) {}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				usage := new(usageLog)
				h := llmhttp.NewHandler(streamBackend(func(ctx context.Context, _ yieldFunc) {
					<-ctx.Done()
					after, left := llm.ClientLeft(ctx)
					assert.True(t, left)
					<-after.Done()
					llm.ReportUsage(after, usageOf(7, 3))
				}), keysFor(testKey()), &llmhttp.Options{Logger: noLog, Usage: usage, Bounds: llmhttp.Bounds{Timeout: time.Minute}})
				ctx, leave := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(chatBody))
				r.Header.Set("Authorization", "Bearer "+testSecret)
				go h.ServeHTTP(httptest.NewRecorder(), r)
				synctest.Wait()
				leave()
				left := time.Now()
				go tt.end(h)
				for synctest.Wait(); len(usage.records()) == 0; synctest.Wait() {
					time.Sleep(time.Second / 2)
				}
				assert.Equal(t, tt.want, time.Since(left))
				assert.Equal(t, llmhttp.UnitsOf(usageOf(7, 3)), usage.records()[0].Units)
			})
		})
	}
	t.Run("Shutdown before ClientLeft is called", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := llmhttp.NewHandler(streamBackend(func(ctx context.Context, _ yieldFunc) {
				<-ctx.Done()
				time.Sleep(time.Second / 2) // in which Shutdown interrupts the request
				_, left := llm.ClientLeft(ctx)
				assert.False(t, left)
			}), keysFor(testKey()), &llmhttp.Options{Logger: noLog})
			ctx, leave := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(chatBody))
			r.Header.Set("Authorization", "Bearer "+testSecret)
			go h.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			leave()
			h.Shutdown(ctx)
		})
	})
	left, ok := llm.ClientLeft(context.Background())
	assert.False(t, ok)
	assert.Equal(t, context.Background(), left)
}

// The numbers of a usage agree with each other, whatever the server sent: otherwise requests
// are free, or pay a negative price.
func TestSettle_UsageIsReconciled(t *testing.T) {
	details := func(u llm.Usage, cached, write, reasoning int) llm.Usage {
		u.PromptTokensDetails = llm.PromptTokensDetails{CachedTokens: cached, CacheWriteTokens: write}
		u.CompletionTokensDetails = llm.CompletionTokensDetails{ReasoningTokens: reasoning}
		return u
	}
	audio := func(u llm.Usage, prompt, completion int) llm.Usage {
		u.PromptTokensDetails.AudioTokens, u.CompletionTokensDetails.AudioTokens = prompt, completion
		return u
	}
	total := llm.Usage{TotalTokens: 1000}
	tests := map[string]struct {
		path, body     string
		reported, want llm.Usage
	}{
		"embeddings, total only":           {embeddingsPath, embeddingBody, total, usageOf(1000, 0)},
		"embeddings, a larger total":       {embeddingsPath, embeddingBody, llm.Usage{PromptTokens: 3, TotalTokens: 1000}, usageOf(1000, 0)},
		"images, total only":               {imagesPath, imageBody, total, usageOf(0, 1000)},
		"chat, total only":                 {chatPath, chatBody, total, usageOf(400, 600)}, // 4 words, and a reply of 6
		"chat, total and prompt":           {chatPath, chatBody, llm.Usage{PromptTokens: 300, TotalTokens: 1000}, usageOf(300, 700)},
		"chat, total and completion":       {chatPath, chatBody, llm.Usage{CompletionTokens: 300, TotalTokens: 1000}, usageOf(700, 300)},
		"reasoning beside the completion":  {chatPath, chatBody, details(llm.Usage{PromptTokens: 32, CompletionTokens: 9, TotalTokens: 135}, 0, 0, 94), details(usageOf(32, 103), 0, 0, 94)},
		"a smaller total":                  {chatPath, chatBody, llm.Usage{PromptTokens: 300, CompletionTokens: 20, TotalTokens: 1}, usageOf(300, 20)},
		"cached above the prompt":          {chatPath, chatBody, details(usageOf(10, 5), 1000, 0, 0), details(usageOf(10, 5), 10, 0, 0)},
		"cached and written":               {chatPath, chatBody, details(usageOf(10, 5), 6, 7, 0), details(usageOf(10, 5), 6, 4, 0)},
		"written above the prompt":         {chatPath, chatBody, details(usageOf(10, 5), 0, 1000, 0), details(usageOf(10, 5), 0, 10, 0)},
		"reasoning above the completion":   {chatPath, chatBody, details(usageOf(10, 5), 0, 0, 1000), details(usageOf(10, 5), 0, 0, 5)},
		"negative details":                 {chatPath, chatBody, details(usageOf(10, 5), -1000, -1, -1000), usageOf(10, 5)},
		"negative audio":                   {chatPath, chatBody, audio(usageOf(10, 5), -1, -1), usageOf(10, 5)},
		"audio above the rest":             {chatPath, chatBody, audio(usageOf(10, 5), 11, 6), audio(usageOf(10, 5), 10, 5)},
		"a negative prompt":                {chatPath, chatBody, usageOf(-10, 5), usageOf(0, 5)},
		"cached tokens of embeddings":      {embeddingsPath, embeddingBody, details(usageOf(10, 0), 1000, 0, 0), details(usageOf(10, 0), 10, 0, 0)},
		"details within a total that grew": {chatPath, chatBody, details(llm.Usage{PromptTokens: 10, TotalTokens: 30}, 10, 0, 20), details(usageOf(10, 20), 10, 0, 20)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reported := tt.reported
			s := startServer(t, config{
				opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}, keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 100_000}}),
				backend: &stubBackend{
					chat: func(context.Context, *llm.ChatRequest) llm.ChatStream {
						return streamOf(chunkWithUsage("a reply that has six words", reported))
					},
					usage: &reported,
				}})
			r := s.do("POST", tt.path, tt.body)
			require.Equal(t, 200, r.StatusCode, "%s", r.body)
			want := tt.want
			if tt.path == imagesPath {
				want = usageOf(2, 998) // "a cat"
			}
			assert.Equal(t, llmhttp.UnitsOf(want), tokensOf(s.record().Units))
			assert.False(t, s.record().Estimated)
			assert.Contains(t, r.body, fmt.Sprintf(`"total_tokens":%d`, want.TotalTokens))
		})
	}
}

// A usage with only total_tokens counts toward a quota.
func TestSettle_TotalTokensCountTowardAQuota(t *testing.T) {
	for path, body := range modelBodies {
		t.Run(path, func(t *testing.T) {
			keys := limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 10_000}})
			s := startServer(t, config{keys: keys, opts: llmhttp.Options{Usage: memory.NewUsageStore()}, backend: &stubBackend{usage: &llm.Usage{TotalTokens: 10_000}}})
			require.Equal(t, 200, s.do("POST", path, body).StatusCode)
			assert.Equal(t, 429, s.do("POST", path, body).StatusCode)
		})
	}
}

// A running total that only grows is no mistake of the Backend: vLLM sends one in each chunk with
// continuous_usage_stats, and an agent adds up the prompts of its calls.
func TestSettle_RunningTotal(t *testing.T) {
	for name, totals := range map[string][]llm.Usage{
		"vLLM":       {usageOf(10, 0), usageOf(10, 1), usageOf(10, 2)},
		"agent":      {usageOf(10, 5), usageOf(40, 9), usageOf(90, 9)},
		"total only": {{TotalTokens: 5}, {TotalTokens: 99}},
		"equal":      {usageOf(10, 2), usageOf(10, 2)},
	} {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: chunkBackend(func() (chunks []*llm.ChatChunk) {
					for _, u := range totals {
						chunks = append(chunks, chunkWithUsage("x ", u))
					}
					return chunks
				})})
				require.Equal(t, 200, s.chat(body).StatusCode)
				assert.EqualValues(t, totals[len(totals)-1].TotalTokens, s.record().Units.Tokens())
				assert.NotContains(t, s.log.String(), "contradict")
			})
		}
	}
}

// If the client of an image request leaves, it pays for the images that it asked for, unless
// nothing was sent.
func TestSettle_ClientLeavesAnImage(t *testing.T) {
	for name, tt := range map[string]struct {
		fail      func(ctx context.Context) (*llm.ImageResponse, error)
		images    int
		estimated bool
	}{
		"canceled": {func(ctx context.Context) (*llm.ImageResponse, error) { return nil, ctx.Err() }, 3, true},
		"nothing":  {func(context.Context) (*llm.ImageResponse, error) { return nil, nil }, 3, true},
		"not sent": {func(ctx context.Context) (*llm.ImageResponse, error) {
			return nil, fmt.Errorf("%w: %w", llm.ErrNotSent, ctx.Err())
		}, 0, false},
		"fewer returned": {func(context.Context) (*llm.ImageResponse, error) {
			return &llm.ImageResponse{Data: make([]llm.Image, 2)}, nil
		}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			s := startServer(t, config{backend: &stubBackend{
				images: func(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
					req.N = nil // it is the Backend's
					leave()
					<-ctx.Done()
					return tt.fail(ctx)
				},
			}})
			_, err := s.open(ctx, "POST", imagesPath, `{"model":"m","prompt":"a cat","n":3}`)
			require.Error(t, err)
			record := s.record()
			assert.EqualValues(t, tt.images, record.Units.Images)
			assert.Equal(t, tt.estimated, record.Estimated)
		})
	}
	t.Run("a failure without a departure", func(t *testing.T) {
		s := startServer(t, config{backend: &stubBackend{images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) { return nil, errCause }}})
		assert.Equal(t, http.StatusInternalServerError, s.do("POST", imagesPath, imageBody).StatusCode)
		assert.Zero(t, s.record().Units.Images)
	})
}

// longData is 1.1 MB of base64.
var longData = strings.Repeat("QUJD", 1_100_000/4)

// An estimate counts all that was sent: 1.1 MB are more than a handful of tokens, wherever
// they are.
func TestSettle_EstimateCountsEverythingSent(t *testing.T) {
	const asText, asMedia = 1_100_000 / 5, 2000
	message := func(members string) string { return `"messages":[{"role":"assistant","content":"x",` + members + `}]` }
	part := func(p string) string { return `"messages":[{"role":"user","content":[` + p + `]}]` }
	hello := `"messages":[{"role":"user","content":"x"}],`
	for name, tt := range map[string]struct {
		members string
		want    int
	}{
		"content":                {`"messages":[{"role":"user","content":"TEXT"}]`, asText},
		"refusal":                {message(`"refusal":"TEXT"`), asText},
		"reasoning":              {message(`"reasoning_content":"TEXT"`), asText},
		"reasoning details":      {message(`"reasoning_details":[{"type":"reasoning.text","text":"TEXT"}]`), asText},
		"reasoning summary":      {message(`"reasoning_details":[{"type":"reasoning.summary","summary":"TEXT"}]`), asText},
		"encrypted reasoning":    {message(`"reasoning_details":[{"type":"reasoning.encrypted","data":"DATA"}]`), asText},
		"member of a detail":     {message(`"reasoning_details":[{"type":"reasoning.text","text":"x","a":["TEXT"]}]`), asText},
		"member of a message":    {message(`"a":{"b":"TEXT"}`), asText},
		"name":                   {message(`"name":"TEXT"`), asText},
		"custom call":            {message(`"tool_calls":[{"id":"1","type":"custom","custom":{"name":"f","input":"TEXT"}}]`), asText},
		"function call":          {message(`"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"TEXT"}}]`), asText},
		"member of a call":       {message(`"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"","a":["TEXT"]}}]`), asText},
		"ID of a call":           {`"messages":[{"role":"tool","content":"x","tool_call_id":"TEXT"}]`, asText},
		"member of a text":       {part(`{"type":"text","text":"x","a":"TEXT"}`), asText},
		"member of an image":     {part(`{"type":"image_url","image_url":{"url":"https://example.com/a.png","a":"TEXT"}}`), asText},
		"detail of an image":     {part(`{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"TEXT"}}`), asText},
		"part of another type":   {part(`{"type":"thinking","thinking":"TEXT"}`), asText},
		"type of a part":         {part(`{"type":"TEXT"}`), asText},
		"image":                  {part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,DATA"}}`), asMedia},
		"audio":                  {part(`{"type":"input_audio","input_audio":{"format":"wav","data":"DATA"}}`), asMedia},
		"file":                   {part(`{"type":"file","file":{"file_data":"data:application/pdf;base64,DATA"}}`), asMedia},
		"text file":              {part(`{"type":"file","file":{"file_data":"data:text/plain;base64,DATA"}}`), 1_100_000 / 6},
		"custom tool":            {hello + `"tools":[{"type":"custom","custom":{"name":"f","description":"TEXT"}}]`, asText},
		"custom tool with media": {hello + `"tools":[{"type":"custom","custom":{"name":"f","description":"data:image/png;base64,DATA"}}]`, asText},
		"member of a tool":       {hello + `"tools":[{"type":"function","function":{"name":"f"},"a":"TEXT"}]`, asText},
		"member of a function":   {hello + `"tools":[{"type":"function","function":{"name":"f","a":"TEXT"}}]`, asText},
		"parameters":             {hello + `"tools":[{"type":"function","function":{"name":"f","parameters":{"a":"TEXT"}}}]`, asText},
		"response format":        {hello + `"response_format":{"type":"json_schema","json_schema":{"a":"TEXT"}}`, asText},
		"tool choice":            {hello + `"tool_choice":{"type":"a","a":"TEXT"}`, asText},
		"stop":                   {hello + `"stop":["a","TEXT"]`, asText},
		"effort":                 {hello + `"reasoning_effort":"TEXT"`, asText},
		"unknown parameter":      {hello + `"prediction":{"type":"content","content":"TEXT"}`, asText},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: textBackend("x")})
			body := strings.NewReplacer("TEXT", texttest.Long, "DATA", longData).Replace(`{"model":"m",` + tt.members + `}`)
			r := s.chat(body)
			require.Equal(t, 200, r.StatusCode, "%.300s", r.body)
			record := s.record()
			assert.True(t, record.Estimated)
			assert.GreaterOrEqual(t, record.Units.PromptTokens, int64(tt.want))
		})
	}
	t.Run("embeddings", func(t *testing.T) {
		s := startServer(t, config{backend: &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil
		}}})
		r := s.do("POST", embeddingsPath, `{"model":"m","input":"x","messages":[{"content":"`+texttest.Long+`"}]}`)
		require.Equal(t, 200, r.StatusCode)
		assert.GreaterOrEqual(t, s.record().Units.PromptTokens, int64(asText))
	})
}

// An estimate counts all that was received.
func TestSettle_EstimateCountsEverythingReceived(t *testing.T) {
	const asText = 1_100_000 / 5
	for name, tt := range map[string]struct {
		delta string
		want  int
	}{
		"content":             {`"content":"TEXT"`, asText},
		"refusal":             {`"refusal":"TEXT"`, asText},
		"reasoning":           {`"reasoning_content":"TEXT"`, asText},
		"reasoning details":   {`"reasoning_details":[{"type":"reasoning.text","text":"TEXT"}]`, asText},
		"details beside text": {`"reasoning_content":"x","reasoning_details":[{"type":"reasoning.text","text":"TEXT"}]`, asText},
		"reasoning summary":   {`"reasoning_details":[{"type":"reasoning.summary","summary":"TEXT"}]`, asText},
		"encrypted reasoning": {`"reasoning_details":[{"type":"reasoning.encrypted","data":"DATA"}]`, asText},
		"signature":           {`"reasoning_details":[{"type":"reasoning.text","signature":"DATA"}]`, asText},
		"function call":       {`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"TEXT"}}]`, asText},
		"custom call":         {`"tool_calls":[{"index":0,"id":"1","type":"custom","custom":{"name":"f","input":"TEXT"}}]`, asText},
		"member":              {`"a":"TEXT"`, asText},
		"member that nests":   {`"annotations":[{"a":{"b":"TEXT"}}]`, asText},
		"content parts":       {`"content":[{"type":"thinking","thinking":"TEXT"}]`, asText},
		"audio":               {`"audio":{"id":"a","data":"DATA"}`, 2000},
		"images":              {`"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,DATA"}}]`, 2000},
	} {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				delta := strings.NewReplacer("TEXT", texttest.Long, "DATA", longData).Replace(tt.delta)
				s := startServer(t, config{backend: jsonBackend(t, `{"choices":[{"index":0,"delta":{`+delta+`}}]}`)})
				require.Equal(t, 200, s.chat(body).StatusCode)
				record := s.record()
				assert.True(t, record.Estimated)
				assert.GreaterOrEqual(t, record.Units.CompletionTokens, int64(tt.want))
				assert.Less(t, record.Units.CompletionTokens, int64(400_000))
			})
		}
	}
}
