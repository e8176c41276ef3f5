package upstream_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

// usagePrices are prices as LiteLLM publishes them.
const usagePrices = `{
	"m": {
		"mode": "chat", "input_cost_per_token": 1e-06, "cache_read_input_token_cost": 1e-07, "output_cost_per_token": 2e-06,
		"cache_creation_input_token_cost": 1.25e-06, "cache_creation_input_token_cost_above_1hr": 2e-06
	},
	"gpt-image-1.5": {
		"mode": "image_generation", "cache_read_input_image_token_cost": 2e-06, "cache_read_input_token_cost": 1.25e-06,
		"input_cost_per_token": 5e-06, "output_cost_per_token": 1e-05, "input_cost_per_image_token": 8e-06, "output_cost_per_image_token": 3.2e-05
	},
	"speech": {"mode": "audio_speech", "input_cost_per_token": 6e-07, "output_cost_per_audio_token": 1.2e-05},
	"voxtral": {"mode": "audio_transcription", "input_cost_per_second": 5e-05, "output_cost_per_second": 0.0}
}`

// newPricedGateway is newGateway with usagePrices.
func newPricedGateway(t *testing.T, h http.HandlerFunc) *gateway {
	t.Helper()
	table, err := pricing.ParseLiteLLM([]byte(usagePrices), nil)
	require.NoError(t, err)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return newGateway(t, s.URL+"/v1", nil, withProtocols, func(o *llmhttp.Options) { o.Price = table.Price })
}

// withWrites returns u with other cache writes by lifetime.
func withWrites(u llmhttp.Units, w llm.CacheWrites) llmhttp.Units {
	u.CacheWrites = w
	return u
}

// A usagePlace is where a server has the usage of chats: it returns a whole reply, or the last events of a stream.
type usagePlace func(usage string, choice string, stream bool) []string

var usagePlaces = map[string]usagePlace{
	"usage": func(usage, choice string, stream bool) []string {
		if stream {
			return []string{`{"id":"up-1","model":"m","choices":[{` + choice + `}]}`, `{"id":"up-1","model":"m","choices":[],"usage":` + usage + `}`}
		}
		return []string{`{"id":"up-1","model":"m","choices":[{` + choice + `}],"usage":` + usage + `}`}
	},
	"choices": func(usage, choice string, _ bool) []string {
		return []string{`{"id":"up-1","model":"m","choices":[{` + choice + `,"usage":` + usage + `}]}`}
	},
	"x_groq": func(usage, choice string, _ bool) []string {
		return []string{`{"id":"up-1","model":"m","choices":[{` + choice + `}],"x_groq":{"id":"req_1","usage":` + usage + `}}`}
	},
}

// usageServer serves chats and completions with a usage in its place.
func usageServer(place usagePlace, usage string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Stream bool }
		_ = json.NewDecoder(r.Body).Decode(&body)
		text := `"message":{"role":"assistant","content":"Hello"}`
		delta := `"delta":{"content":"Hello"}`
		if strings.HasSuffix(r.URL.Path, "/v1/completions") {
			text, delta = `"text":"Hello"`, `"text":"Hello"`
		}
		if !body.Stream {
			io.WriteString(w, place(usage, `"index":0,`+text+`,"finish_reason":"stop"`, false)[0])
			return
		}
		first := `{"id":"up-1","model":"m","choices":[{"index":0,` + delta + `,"finish_reason":null}],"usage":null}`
		end := place(usage, `"index":0,"delta":{},"finish_reason":"stop"`, true)
		io.WriteString(w, eventStream(append(append([]string{first}, end...), done)...))
	}
}

// chatRequests are requests for a text in each format.
var chatRequests = map[string]struct{ path, body string }{
	"chat":        {chatPath, askWhole},
	"Messages":    {"/v1/messages", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hello?"}]}`},
	"Responses":   {"/v1/responses", `{"model":"m","store":false,"input":"Hello?"}`},
	"completions": {"/v1/completions", `{"model":"m","prompt":"Hello?"}`},
}

// The usage of a chat is recorded and billed wherever the server has it and whatever it calls it, for clients of every
// format, whole and streamed.
func TestUsage_Chat(t *testing.T) {
	cached := llmhttp.Units{PromptTokens: 100, CachedTokens: 60, CompletionTokens: 20}
	// 40 * $1/M, 60 * $0.10/M, 20 * $2/M
	cost := llmhttp.Cost{Input: 40_000, CacheRead: 6_000, Output: 40_000}
	reasoned := cached
	reasoned.ReasoningTokens = 5
	written, writtenFor := cached, cached
	written.CachedTokens, written.CacheWriteTokens = 40, 30
	writtenFor.CachedTokens, writtenFor.CacheWriteTokens, writtenFor.CacheWrites = 40, 30, llm.CacheWrites{5 * time.Minute: 10, time.Hour: 20}
	// 30 * $1/M, 40 * $0.10/M, 20 * $2/M, and 30 * $1.25/M or 10 * $1.25/M + 20 * $2/M
	writtenCost := llmhttp.Cost{Input: 30_000, CacheRead: 4_000, CacheWrite: 37_500, Output: 40_000}
	writtenForCost := llmhttp.Cost{Input: 30_000, CacheRead: 4_000, CacheWrite: 52_500, Output: 40_000}
	for name, test := range map[string]struct {
		usage string
		want  llmhttp.Units
		cost  llmhttp.Cost
	}{
		"OpenAI":         {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60}}`, cached, cost},
		"Kimi, StepFun":  {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cached_tokens":60}`, cached, cost},
		"DeepSeek":       {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40}`, cached, cost},
		"DeepSeek, both": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60},"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":40}`, cached, cost},
		"LiteLLM":        {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cache_read_input_tokens":60,"cache_creation_input_tokens":0}`, cached, cost},
		"Responses":      {`{"input_tokens":100,"output_tokens":20,"total_tokens":120,"input_tokens_details":{"cached_tokens":60},"output_tokens_details":{"reasoning_tokens":5}}`, reasoned, cost},
		"texts":          {`{"prompt_tokens":"100","completion_tokens":"20","cached_tokens":"60.0"}`, cached, cost},
		"Perplexity":     {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cached_tokens":60,"reasoning_tokens":5,"search_context_size":"low"}`, reasoned, cost},
		"Mistral's audio": {`{"prompt_audio_seconds":13,"prompt_tokens":14,"completion_tokens":27,"total_tokens":209}`,
			llmhttp.Units{PromptTokens: 182, PromptAudioTokens: 168, CompletionTokens: 27}, llmhttp.Cost{Input: 182_000, Output: 54_000}},
		"OpenRouter, writes": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cost":0.1,"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":30,"audio_tokens":0}}`, written, writtenCost},
		"OpenRouter, an hour": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":30,"cache_write_1h_tokens":20}}`,
			withWrites(writtenFor, llm.CacheWrites{time.Hour: 20}), writtenForCost},
		"LiteLLM, writes": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40,"cache_creation_tokens":30,` +
			`"cache_creation_token_details":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}},"cache_creation_input_tokens":30,"cache_read_input_tokens":40}`, writtenFor, writtenForCost},
		"LiteLLM, writes in details": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40,"cache_creation_tokens":30}}`, written, writtenCost},
		"Anthropic's members": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cache_read_input_tokens":40,"cache_creation_input_tokens":30,` +
			`"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}`, writtenFor, writtenForCost},
		"Alibaba Cloud": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40,"cache_type":"ephemeral","cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":30}}}`,
			withWrites(written, llm.CacheWrites{5 * time.Minute: 30}), writtenCost},
		"new-api": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40,"cached_creation_tokens":30},` +
			`"claude_cache_creation_5_m_tokens":10,"claude_cache_creation_1_h_tokens":20}`, writtenFor, writtenForCost},
		"new-api, nothing written": {`{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cached_creation_tokens":0},"claude_cache_creation_5_m_tokens":0,"claude_cache_creation_1_h_tokens":0}`, cached, cost},
		"Mistral's text":           {`{"prompt_audio_seconds":null,"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60}}`, cached, cost},
	} {
		for where, place := range usagePlaces {
			for format, request := range chatRequests {
				for _, stream := range []bool{false, true} {
					t.Run(name+"/"+where+"/"+format+"/stream="+encode(t, stream), func(t *testing.T) {
						checkLeaks(t)
						g := newPricedGateway(t, usageServer(place, test.usage))
						got := g.do("POST", request.path, withMembers(request.body, `"stream":`+encode(t, stream)))
						require.Equal(t, 200, got.StatusCode, "%s", got.body)
						assert.Contains(t, got.body, "Hello")
						record := g.summary().Record
						assert.Equal(t, test.want, record.Units)
						assert.Equal(t, test.cost, record.Cost)
						assert.False(t, record.Estimated)
						if !stream && where == "choices" {
							assert.Equal(t, 1, strings.Count(got.body, `"usage"`), "%s", got.body)
						}
						assert.NotContains(t, g.log.String(), "the usage of a reply is not known")
					})
				}
			}
		}
	}
}

// Each of several choices has its own completion.
func TestUsage_Choices(t *testing.T) {
	const (
		first  = `"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"cached_tokens":60}`
		second = `"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"cached_tokens":60}`
	)
	for name, reply := range map[string]string{
		"whole": `{"id":"a","model":"m","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop",` + first + `},{"index":1,"message":{"content":"b"},"finish_reason":"stop",` + second + `}]}`,
		"stream": eventStream(`{"id":"a","model":"m","choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`,
			`{"id":"a","model":"m","choices":[{"index":1,"delta":{},"finish_reason":"stop",`+second+`}]}`,
			`{"id":"a","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop",`+first+`}]}`, done),
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := newPricedGateway(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, reply) })
			got := g.chat(withMembers(askWhole, `"n":2,"stream":`+encode(t, name == "stream")))
			require.Equal(t, 200, got.StatusCode, "%s", got.body)
			assert.Equal(t, llmhttp.Units{PromptTokens: 100, CachedTokens: 60, CompletionTokens: 27}, g.summary().Record.Units)
		})
	}
}

// transcriptionForm returns the body of a request for a transcription by the model voxtral, and its Content-Type.
func transcriptionForm(stream bool) (body, contentType string) {
	const boundary = "0123456789"
	field := func(head, value string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; name=" + head + "\r\n\r\n" + value + "\r\n"
	}
	body = field(`"model"`, "voxtral") + field(`"file"; filename="a.mp3"`, "recording")
	if stream {
		body += field(`"stream"`, "true")
	}
	return body + "--" + boundary + "--\r\n", "multipart/form-data; boundary=" + boundary
}

// An otherRequest is a request for something else than a text, with what the server replies.
type otherRequest struct {
	path, body string // an empty body is a form for a transcription; a stream if the reply is one
	reply      string
	want       llmhttp.Units
	cost       llmhttp.Cost
}

func (o *otherRequest) send(t *testing.T) (*gateway, reply) {
	t.Helper()
	stream := strings.HasPrefix(o.reply, "data: ")
	g := newPricedGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		if w.Header().Set("Content-Type", mediaJSON); stream {
			w.Header().Set("Content-Type", mediaEvents)
		}
		io.WriteString(w, o.reply)
	})
	body, contentType := o.body, mediaJSON
	if body == "" {
		body, contentType = transcriptionForm(stream)
	}
	r := g.request(t.Context(), "POST", o.path, body)
	r.Header.Set("Content-Type", contentType)
	return g, g.send(r)
}

const (
	transcriptionPath = "/v1/audio/transcriptions"
	askImage15        = `{"model":"gpt-image-1.5","prompt":"a cat","response_format":"b64_json"}`
	imageData         = `"b64_json":"YQ=="`
	audioDelta        = `{"type":"speech.audio.delta","audio":"YWI="}`
)

// The usage of every other endpoint is recorded and billed, too.
func TestUsage_Endpoints(t *testing.T) {
	const mistral = `"usage":{"prompt_audio_seconds":13,"prompt_tokens":14,"completion_tokens":27,"total_tokens":209}`
	spoken := llmhttp.Units{PromptTokens: 182, PromptAudioTokens: 168, CompletionTokens: 27, AudioMillis: 13_000}
	spokenCost := llmhttp.Cost{Output: 650_000} // 13 * $0.00005
	painted := llmhttp.Units{PromptTokens: 50, PromptImageTokens: 40, CompletionTokens: 272, Images: 1}
	paintedCost := llmhttp.Cost{Input: 370_000, Output: 8_704_000} // 10 * $5/M + 40 * $8/M; 272 * $32/M
	flat := llmhttp.Units{PromptTokens: 50, CompletionTokens: 272, Images: 1}
	flatCost := llmhttp.Cost{Input: 250_000, Output: 8_704_000}
	said := llmhttp.Units{PromptTokens: 14, CompletionTokens: 101, CompletionAudioTokens: 101, Characters: 5}
	saidCost := llmhttp.Cost{Input: 8_400, Output: 1_212_000}
	tokens := llmhttp.Units{PromptTokens: 8}
	ranked := llmhttp.Units{PromptTokens: 8, SearchUnits: 1}
	for name, test := range map[string]otherRequest{
		"Mistral": {transcriptionPath, "", `{"model":"voxtral","text":"Hello","language":null,"segments":[],` + mistral + `}`, spoken, spokenCost},
		"Mistral, events": {transcriptionPath, "", eventStream(`{"type":"transcription.language","audio_language":"en"}`, `{"type":"transcription.text.delta","text":"Hel"}`,
			`{"type":"transcription.text.delta","text":"lo"}`, `{"type":"transcription.done","model":"voxtral","text":"Hello","language":"en","segments":[],`+mistral+`}`), spoken, spokenCost},
		"Mistral, silence": {transcriptionPath, "", `{"model":"voxtral","text":"Hello","usage":{"prompt_audio_seconds":2}}`, llmhttp.Units{AudioMillis: 2000}, llmhttp.Cost{Output: 100_000}},
		"vLLM, events": {transcriptionPath, "", eventStream(`{"object":"transcription.chunk","choices":[{"delta":{"content":"Hello"}}]}`,
			`{"object":"transcription.chunk","choices":[],"usage":{"prompt_tokens":14,"completion_tokens":27,"total_tokens":41}}`, done), llmhttp.Units{PromptTokens: 14, CompletionTokens: 27}, llmhttp.Cost{}},
		"OpenAI's transcription": {transcriptionPath, "", `{"text":"Hello","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":10,"text_tokens":4},"output_tokens":3,"total_tokens":17}}`,
			llmhttp.Units{PromptTokens: 14, PromptAudioTokens: 10, CompletionTokens: 3}, llmhttp.Cost{}},
		"a duration": {transcriptionPath, "", `{"text":"Hello","usage":{"type":"duration","seconds":13}}`, llmhttp.Units{AudioMillis: 13_000}, spokenCost},

		"images":                  {imagesPath, askImage15, `{"created":5,"data":[{` + imageData + `}],"usage":{"input_tokens":50,"output_tokens":272,"total_tokens":322,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}`, painted, paintedCost},
		"images, events":          {imagesPath, withMembers(askImage15, `"stream":true`), eventStream(`{"type":"image_generation.completed",` + imageData + `,"usage":{"input_tokens":50,"output_tokens":272,"total_tokens":322,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}`), painted, paintedCost},
		"images of chats":         {imagesPath, askImage15, `{"created":5,"data":[{` + imageData + `}],"usage":{"prompt_tokens":50,"completion_tokens":272,"total_tokens":322}}`, flat, flatCost},
		"images of few tokens":    {imagesPath, askImage15, `{"created":5,"data":[{` + imageData + `}],"usage":{"prompt_tokens":50,"completion_tokens":272}}`, flat, flatCost},
		"images of chats, events": {imagesPath, withMembers(askImage15, `"stream":true`), eventStream(`{"type":"image_generation.completed",` + imageData + `,"usage":{"prompt_tokens":50,"completion_tokens":272}}`), flat, flatCost},

		"speech":          {speechPath, `{"model":"speech","input":"Hello","voice":"alloy"}`, eventStream(audioDelta, `{"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}`), said, saidCost},
		"speech of chats": {speechPath, `{"model":"speech","input":"Hello","voice":"alloy"}`, eventStream(audioDelta, `{"type":"speech.audio.done","usage":{"prompt_tokens":14,"completion_tokens":101}}`), said, saidCost},

		"embeddings":  {"/v1/embeddings", `{"model":"m","input":"a"}`, `{"object":"list","data":[{"index":0,"embedding":[0.5]}],"model":"m","usage":{"input_tokens":8}}`, tokens, llmhttp.Cost{Input: 8_000}},
		"moderations": {"/v1/moderations", `{"model":"m","input":"a"}`, `{"id":"modr-1","model":"m","results":[{"flagged":false,"categories":{},"category_scores":{}}],"usage":{"input_tokens":8}}`, tokens, llmhttp.Cost{Input: 8_000}},
		"rerank":      {"/v1/rerank", `{"model":"m","query":"q","documents":["a"]}`, `{"model":"m","results":[{"index":0,"relevance_score":0.5}],"usage":{"input_tokens":8}}`, ranked, llmhttp.Cost{Input: 8_000}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g, got := test.send(t)
			require.Equal(t, 200, got.StatusCode, "%s", got.body)
			record := g.summary().Record
			assert.Equal(t, test.want, record.Units)
			assert.Equal(t, test.cost, record.Cost)
			assert.False(t, record.Estimated)
			assert.NotContains(t, g.log.String(), "the usage of a reply is not known")
			if test.path == transcriptionPath {
				assert.Contains(t, strings.NewReplacer(`"Hel"`, "", `"lo"`, `"Hello"`).Replace(got.body), "Hello")
			}
		})
	}
}

// A usage of which no member is known is logged once, with the names of its members and no values, and the record is an estimate.
func TestUsage_Unknown(t *testing.T) {
	const usage = `{"tokensIn":5,"tokensOut":{"secret":"` + serverKey + `"}}`
	check := func(t *testing.T, g *gateway, got reply) {
		t.Helper()
		require.Equal(t, 200, got.StatusCode, "%s", got.body)
		assert.True(t, g.summary().Record.Estimated)
		const message = "the usage of a reply is not known"
		require.Equal(t, 1, strings.Count(g.log.String(), message), "%s", g.log)
		for line := range strings.Lines(g.log.String()) {
			if strings.Contains(line, message) {
				assert.Contains(t, line, `"level":"WARN"`)
				assert.Contains(t, line, `upstream: status 200: the usage has only members that are not known: [\"tokensIn\" \"tokensOut\"]`)
			}
		}
	}
	for where, place := range usagePlaces {
		for format, request := range chatRequests {
			for _, stream := range []bool{false, true} {
				t.Run(where+"/"+format+"/stream="+encode(t, stream), func(t *testing.T) {
					checkLeaks(t)
					g := newPricedGateway(t, usageServer(place, usage))
					check(t, g, g.do("POST", request.path, withMembers(request.body, `"stream":`+encode(t, stream))))
				})
			}
		}
	}
	for name, test := range map[string]otherRequest{
		"transcription":         {path: transcriptionPath, reply: `{"text":"Hello","duration":13,"usage":` + usage + `}`},
		"transcription, events": {path: transcriptionPath, reply: eventStream(`{"type":"transcript.text.delta","delta":"Hello"}`, `{"type":"transcript.text.done","usage":`+usage+`}`)},
		"images":                {path: imagesPath, body: askImage15, reply: `{"created":5,"data":[{` + imageData + `}],"usage":` + usage + `}`},
		"images, events":        {path: imagesPath, body: withMembers(askImage15, `"stream":true`), reply: eventStream(`{"type":"image_generation.completed",` + imageData + `,"usage":` + usage + `}`)},
		"speech":                {path: speechPath, body: `{"model":"speech","input":"Hello","voice":"alloy"}`, reply: eventStream(audioDelta, `{"type":"speech.audio.done","usage":`+usage+`}`)},
		"embeddings":            {path: "/v1/embeddings", body: `{"model":"m","input":"a"}`, reply: `{"data":[{"index":0,"embedding":[0.5]}],"usage":` + usage + `}`},
		"moderations":           {path: "/v1/moderations", body: `{"model":"m","input":"a"}`, reply: `{"results":[{"flagged":false,"categories":{},"category_scores":{}}],"usage":` + usage + `}`},
		"rerank":                {path: "/v1/rerank", body: `{"model":"m","query":"q","documents":["a"]}`, reply: `{"results":[{"index":0,"relevance_score":0.5}],"usage":` + usage + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g, got := test.send(t)
			check(t, g, got)
		})
	}
}

// Servers that do not count tokens say so in several ways, none of which is worth a line in the log.
func TestUsage_None(t *testing.T) {
	for _, usage := range []string{`null`, `{}`, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, `{"prompt_tokens":null,"cost":1}`, `[]`, `"none"`} {
		for _, stream := range []bool{false, true} {
			g := newPricedGateway(t, usageServer(usagePlaces["usage"], usage))
			got := g.chat(withMembers(askWhole, `"stream":`+encode(t, stream)))
			require.Equal(t, 200, got.StatusCode, "%s", got.body)
			assert.True(t, g.summary().Record.Estimated, usage)
			assert.NotContains(t, g.log.String(), "the usage of a reply is not known", usage)
		}
	}
}
