package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashabaranov/go-openai"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/time/rate"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/otelllm"
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/upstream"
)

// The contenders that serve HTTP, and what other cases compare with.
const (
	ours            = "llmhttp"      // with keys, two rate limits and usage records in memory
	base            = "base"         // the llmhttp of the command that -base names
	traced          = "otelllm"      // llmhttp with spans, of which 1 % are sampled, and metrics
	priced          = "priced"       // llmhttp with prices, and limits of an account and a team
	messagesAPI     = "messages"     // llmhttp, asked through the Messages API
	responsesAPI    = "responses"    // llmhttp, asked through the Responses API
	bare            = "bare"         // net/http that writes the bytes llmhttp would
	bareWithHeaders = "bare+headers" // bare with the headers that llmhttp sends
	std             = "std"          // net/http, encoding/json and the types of go-openai
	example         = "example"      // examples/gateway, which is llmhttp with package route, more protocols and a line of log for each request
	proxy           = "ReverseProxy" // httputil's, with a transport that keeps its connections
	goOpenAI        = "go-openai"    // encoding/json into the types of go-openai
	allowN          = "AllowN"       // time.Now and two calls of rate.Limiter.AllowN
)

// newHandler returns the handler of a contender. If upstreamAddr is not empty,
// llmhttp and ReverseProxy are gateways to that server.
func newHandler(contender string, m mode, upstreamAddr string) (http.Handler, error) {
	switch contender {
	case ours:
		if upstreamAddr == "" {
			return newOurs(newModel(m), llmhttp.Options{}), nil
		}
		b, err := upstream.New("http://"+upstreamAddr+"/v1", &upstream.Options{Key: "sk-upstream"})
		return newOurs(b, llmhttp.Options{}), err
	case traced:
		telemetry, err := newTelemetry()
		return newOurs(newModel(m), llmhttp.Options{Observe: telemetry.Observe}), err
	case priced:
		return newPriced(newModel(m))
	case messagesAPI:
		return newOurs(newModel(m), llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}}), nil
	case responsesAPI:
		return newOurs(newModel(m), llmhttp.Options{Protocols: []llmhttp.Protocol{responses.New(nil)}}), nil
	case bare:
		return newBare(m, false), nil
	case bareWithHeaders:
		return newBare(m, true), nil
	case std:
		return newStd(), nil
	case proxy:
		return newProxy(upstreamAddr), nil
	}
	return nil, fmt.Errorf("unknown contender %q", contender)
}

// A mode is the way in which the model behind a contender replies.
type mode string

const (
	modeWhole  mode = "whole"  // one text
	modeReady  mode = "ready"  // chunks without a pause between them
	modePaced  mode = "paced"  // chunks with chunkPause between them
	modeBursts mode = "bursts" // burstSize chunks at a time with burstPause between them; the texts are times in ns
	modeHeld   mode = "held"   // one chunk and then silence until the client leaves
	modeSpeech mode = "speech" // pieces of audio with chunkPause between them
)

const (
	modelName    = "demo-chat"
	promptTokens = 80
	chunkCount   = 100 // chunks of a stream
	chunkPause   = time.Millisecond
	burstSize    = 10
	burstPause   = 20 * time.Millisecond
)

// answerText is the whole answer of the model. Streams have one of its words in each chunk.
var answerText = strings.Repeat("Paris is the capital of France, as it has been with few breaks since the year 987. ", 3)

// words is made once, because the cost of the model is not llmhttp's.
var words = strings.SplitAfter(strings.TrimSpace(answerText), " ")

func word(i int) string { return words[i%len(words)] }

// spoken is the speech of the model: chunkCount pieces of 2 KiB.
var spoken = slices.Repeat([][]byte{bytes.Repeat([]byte{0, 'a', 0xff, '\n'}, 512)}, chunkCount)

func (m mode) streams() bool { return m != modeWhole }

// texts returns the texts that the model generates.
func (m mode) texts(ctx context.Context) iter.Seq[string] {
	return func(yield func(string) bool) {
		if m == modeWhole {
			yield(answerText)
			return
		}
		for i := range chunkCount {
			text := word(i)
			switch m {
			case modeSpeech:
				text = "" // the audio is not copied
			case modeBursts:
				text = strconv.FormatInt(time.Now().UnixNano(), 10)
			}
			if !yield(text) {
				return
			}
			switch {
			case m == modeHeld:
				<-ctx.Done()
				return
			case m == modePaced || m == modeSpeech:
				time.Sleep(chunkPause)
			case m == modeBursts && (i+1)%burstSize == 0:
				time.Sleep(burstPause)
			}
		}
	}
}

// A speaker is a Backend that speaks.
type speaker struct {
	llmhttp.BackendFunc
	mode mode
}

func (s speaker) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		var chunk audio.SpeechChunk
		i := 0
		for range s.mode.texts(ctx) {
			chunk.Audio = spoken[i]
			if !yield(&chunk, nil) {
				return
			}
			i++
		}
	}
}

// newModel returns a Backend that answers in mode m.
func newModel(m mode) llmhttp.Backend {
	return speaker{mode: m, BackendFunc: func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			n := 0
			for text := range m.texts(ctx) {
				n++
				if !yield(llm.TextChunk(text), nil) {
					return
				}
			}
			yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: promptTokens, CompletionTokens: n}}, nil)
		}
	}}
}

// secret is the API key of every request.
const secret = "sk-bench-7d0b2c4e9f1a63587d0b2c4e9f1a6358"

// newOurs returns a Handler as a host would configure it: with a key, a limit of requests and one
// of tokens that no load reaches, and usage records.
func newOurs(b llmhttp.Backend, options llmhttp.Options) http.Handler {
	options.Usage, options.Routes = memory.NewUsageStore(), audio.Routes(nil)
	return llmhttp.NewHandler(b, newKeys(), &options)
}

const accountName = "acme" // of every request

// newKeys returns the KeyStore with the key of every request, which counts toward subjects.
func newKeys(subjects ...llmhttp.Subject) llmhttp.KeyStore {
	keys := memory.NewKeyStore()
	keys.Add(secret, &llmhttp.Key{ID: "key_1", Account: accountName, Limits: newLimits(), Subjects: subjects})
	return keys
}

// newLimits returns rates that no load reaches.
func newLimits() llmhttp.Limits {
	limit := llmhttp.PerMinute(1 << 40)
	return llmhttp.Limits{Requests: limit, Tokens: limit}
}

// prices are those of the model and of others, as a host has them.
const prices = `{
	"models": {
		"demo-chat": {"input": "3", "cache_read": "0.3", "output": "15", "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}]},
		"demo-small": {"input": "0.2", "output": "0.8"},
		"demo-*": {"input": "1", "output": "4"}
	},
	"accounts": {"acme": "0.9", "*": "1.2"}
}`

// newPriced returns the Handler of newOurs with prices, and with a team and an account, each with
// two rates and a quota in money that no load reaches.
func newPriced(b llmhttp.Backend) (http.Handler, error) {
	table, err := pricing.Parse([]byte(prices), nil)
	if err != nil {
		return nil, err
	}
	limits := newLimits()
	limits.Quota.Cost = 1e9 * llm.MoneyUnit
	keys := newKeys(
		llmhttp.Subject{ID: llmhttp.SubjectID{Kind: "team", ID: "research"}, Limits: limits},
		llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: accountName}, Limits: limits},
	)
	return llmhttp.NewHandler(b, keys, &llmhttp.Options{Usage: memory.NewUsageStore(), Price: table.Price}), nil
}

// newTelemetry returns a Telemetry that samples 1 % of the traces. It exports neither
// spans nor metrics.
func newTelemetry() (*otelllm.Telemetry, error) {
	return otelllm.New(&otelllm.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)))),
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
}

// newBare returns a handler that reads the body and writes a prepared answer, which has the bytes
// of llmhttp's. It flushes after each chunk. If allHeaders is true, it sends the headers of llmhttp
// too.
func newBare(m mode, allHeaders bool) http.Handler {
	reply := ourReply(m)
	headers := reply.Header()
	headers.Del("Content-Length") // net/http sets it
	if !allHeaders {
		headers = http.Header{"Content-Type": headers["Content-Type"]}
	}
	body := reply.Body.Bytes()
	var frames [][]byte
	switch {
	case m == modeSpeech:
		frames = append(spoken[:chunkCount:chunkCount], nil)
	case m.streams():
		frames = splitFrames(body)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), headers)
		if !m.streams() {
			w.Write(body)
			return
		}
		i := 0
		for range m.texts(r.Context()) {
			w.Write(frames[i])
			w.(http.Flusher).Flush()
			i++
		}
		w.Write(frames[chunkCount])
	})
}

// ourReply returns llmhttp's reply to a short request.
func ourReply(m mode) *httptest.ResponseRecorder {
	r := chatRequest(512, m.streams())
	switch {
	case m == modeSpeech:
		r = speechRequest()
	case m.streams():
		m = modeReady // the same bytes without pauses
	}
	w := httptest.NewRecorder()
	newOurs(newModel(m), llmhttp.Options{}).ServeHTTP(w, r.http(""))
	return w
}

// splitFrames splits a stream of chunkCount chunks into the parts that are flushed together: the
// role with the first chunk, each other chunk, and the end of the stream.
func splitFrames(stream []byte) [][]byte {
	events := bytes.SplitAfter(stream, []byte("\n\n"))
	frames := [][]byte{bytes.Join(events[:2], nil)}
	frames = append(frames, events[2:chunkCount+1]...)
	return append(frames, bytes.Join(events[chunkCount+1:], nil))
}

// newStd returns a handler like those that hosts write without a package. It sends no
// headers about limits or request IDs, and it does not stream.
func newStd() http.Handler {
	type account struct {
		requests, tokens *rate.Limiter
		used             atomic.Int64 // tokens
	}
	accounts := map[string]*account{
		secret: {requests: rate.NewLimiter(1<<34, 1<<40), tokens: rate.NewLimiter(1<<34, 1<<40)},
	}
	var answer openai.ChatCompletionResponse
	if err := json.Unmarshal(ourReply(modeWhole).Body.Bytes(), &answer); err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		var req openai.ChatCompletionRequest
		switch account := accounts[key]; {
		case account == nil:
			http.Error(w, "unknown API key", http.StatusUnauthorized)
		case !account.requests.Allow():
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		case json.NewDecoder(r.Body).Decode(&req) != nil || req.Model == "" || len(req.Messages) == 0:
			http.Error(w, "bad request", http.StatusBadRequest)
		case !account.tokens.AllowN(time.Now(), req.MaxTokens): //lint:ignore SA1019 the requests set this field
			http.Error(w, "too many tokens", http.StatusTooManyRequests)
		default:
			reply := answer
			reply.ID, reply.Created, reply.Model = "chatcmpl-"+rand.Text(), time.Now().Unix(), req.Model
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(reply)
			account.used.Add(int64(reply.Usage.TotalTokens))
		}
	})
}

// newProxy returns httputil's ReverseProxy. Its transport keeps more idle
// connections for a host than http.DefaultTransport, which keeps two. Without
// full duplex it cuts some replies short: https://go.dev/issue/40747.
func newProxy(addr string) http.Handler {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	p.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		p.ServeHTTP(w, r)
	})
}
