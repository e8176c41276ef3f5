package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/middleware"
	"github.com/sashabaranov/go-openai"
	"golang.org/x/time/rate"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// The contenders.
const (
	ours   = "llmhttp" // with keys, two limits and usage in memory
	bare   = "bare"    // net/http: reads the body and writes the same bytes
	headed = "headed"  // bare, with the other headers that the Handler sends
	std    = "std"     // net/http, encoding/json and go-openai's types
	ginned = "gin"     // the same on gin
	ollama = "ollama"  // Ollama's middleware in front of a stub
)

var everyone = []string{ours, bare, headed, std, ginned, ollama}

// mainPeers are those for whom it matters little what headers cost.
var mainPeers = []string{ours, bare, std, ginned, ollama}

// newPeer returns a contender whose model answers as m has it, or nil if there
// is no such contender.
func newPeer(name string, m mode) http.Handler {
	switch name {
	case ours:
		return newOurs(m)
	case bare:
		return newBare(m)
	case headed:
		return newHeaded(m)
	case std:
		return newStd(m)
	case ginned:
		return newGin(m)
	case ollama:
		return newOllama(m)
	}
	return nil
}

// A mode is how the model answers that stands behind every contender.
type mode string

const (
	modeWhole  mode = "whole"  // in one piece
	modeReady  mode = "ready"  // in chunks that are ready at once
	modeTurns  mode = "turns"  // in chunks; after each it is the other streams' turn
	modePaced  mode = "paced"  // in chunks a millisecond apart
	modeBursts mode = "bursts" // some chunks at once, then a pause, again and again; a chunk tells when it was yielded
	modeHeld   mode = "held"   // one chunk, and then nothing until the client leaves
)

const (
	modelName   = "demo-chat"
	chunkCount  = 100 // of a stream
	burstChunks = 10
	burstPause  = 20 * time.Millisecond
)

// answerText is what the model says: in one piece, or one word a chunk.
var answerText = strings.Repeat("Paris is the capital of France, as it has been with few breaks since the year 987. ", 3)

func (m mode) streams() bool { return m != modeWhole }

// afterAll returns the mode that has the same answer at once.
func (m mode) afterAll() mode {
	if m.streams() {
		return modeReady
	}
	return m
}

// say returns what the model says until ctx is done.
func (m mode) say(ctx context.Context) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch m {
		case modeWhole:
			yield(answerText)
		case modeHeld:
			if yield(word(0)) {
				<-ctx.Done()
			}
		case modeBursts:
			for ctx.Err() == nil {
				for range burstChunks {
					if !yield(stamp()) {
						return
					}
				}
				time.Sleep(burstPause)
			}
		default:
			for i := range chunkCount {
				if !yield(word(i)) {
					return
				}
				switch m {
				case modeTurns:
					runtime.Gosched()
				case modePaced:
					time.Sleep(time.Millisecond)
				}
			}
		}
	}
}

var words = strings.SplitAfter(answerText, " ")

func word(i int) string { return words[i%(len(words)-1)] }

// said is all that a model says whose stream ends.
func (m mode) said() string {
	return strings.Join(collectText(m.say(context.Background())), "")
}

func collectText(texts iter.Seq[string]) (all []string) {
	for text := range texts {
		all = append(all, text)
	}
	return all
}

// secret is the key that every request presents.
const secret = "sk-bench-7d0b2c4e9f1a63587d0b2c4e9f1a6358"

// plenty is a limit that no load reaches.
var plenty = llmhttp.PerMinute(1 << 40)

// newOurs returns what is measured: the Handler, as a host would have it.
func newOurs(m mode) http.Handler {
	keys := memory.Keys()
	keys.Add(secret, &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: plenty, Tokens: plenty}})
	return llmhttp.NewHandler(model{m}, keys, &llmhttp.Options{Usage: memory.NewUsageStore()})
}

// A model is an [llmhttp.Backend] that says what its mode does.
type model struct{ mode mode }

func (b model) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		n := 0
		for text := range b.mode.say(ctx) {
			n++
			if !yield(llmhttp.TextChunk(text), nil) {
				return
			}
		}
		yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: promptTokens, CompletionTokens: n}}, nil)
	}
}

const promptTokens = 80

// newBare returns a handler that knows its answer beforehand. It has the bytes
// of the Handler's, and flushes them as often: after each chunk.
func newBare(m mode) http.Handler {
	if !m.streams() {
		reply := oursReply(m)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Write(reply)
		})
	}
	if m == modeBursts {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for text := range m.say(r.Context()) {
				fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":"%s"}}]}`+"\n\n", text)
				w.(http.Flusher).Flush()
			}
		})
	}
	frames := framesOf(oursReply(m.afterAll()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		i := 0
		for range m.say(r.Context()) {
			w.Write(frames[i])
			w.(http.Flusher).Flush()
			i++
		}
		w.Write(frames[len(frames)-1])
		w.(http.Flusher).Flush()
	})
}

// newHeaded returns a bare handler that sends all headers the Handler does.
func newHeaded(m mode) http.Handler {
	next := newBare(m)
	headers := oursResponse(m.afterAll()).Header()
	headers.Del("Content-Length")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, values := range headers {
			h[name] = values
		}
		next.ServeHTTP(w, r)
	})
}

// oursReply returns the body with which the Handler answers.
func oursReply(m mode) []byte { return oursResponse(m).Body.Bytes() }

func oursResponse(m mode) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(chatBody(512, m.streams())))
	r.Header.Set("Authorization", "Bearer "+secret)
	newOurs(m).ServeHTTP(w, r)
	return w
}

// framesOf cuts a stream into what is flushed together: a chunk's event, the
// first one's with that of the role before it, and at last the end.
func framesOf(stream []byte) [][]byte {
	events := bytes.SplitAfter(stream, []byte("\n\n"))
	events = events[:len(events)-1] // nothing follows the last
	frames := [][]byte{bytes.Join(events[:2], nil)}
	for len(frames) < chunkCount {
		frames = append(frames, events[len(frames)+1])
	}
	return append(frames, bytes.Join(events[chunkCount+1:], nil))
}

// newStd returns the handler as it is most often written by hand.
func newStd(m mode) http.Handler {
	desk := newDesk()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var req openai.ChatCompletionRequest
		account, status := desk.admit(r.Header.Get("Authorization"))
		if status == http.StatusOK && json.NewDecoder(r.Body).Decode(&req) != nil {
			status = http.StatusBadRequest
		}
		if status == http.StatusOK {
			status = desk.check(account, &req)
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		n := 0
		if !req.Stream {
			w.Header().Set("Content-Type", "application/json")
			var text string
			for s := range m.say(r.Context()) {
				n++
				text += s
			}
			json.NewEncoder(w).Encode(wholeReply(&req, text, n))
		} else {
			n = streamReply(w, r, m, &req)
		}
		desk.record(account, promptTokens, n)
	})
	return mux
}

// newGin returns the same on gin.
func newGin(m mode) http.Handler {
	desk := newDesk()
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(gin.Recovery())
	engine.POST("/v1/chat/completions", func(c *gin.Context) {
		var req openai.ChatCompletionRequest
		account, status := desk.admit(c.GetHeader("Authorization"))
		if status == http.StatusOK && c.ShouldBindJSON(&req) != nil {
			status = http.StatusBadRequest
		}
		if status == http.StatusOK {
			status = desk.check(account, &req)
		}
		if status != http.StatusOK {
			c.JSON(status, gin.H{"error": http.StatusText(status)})
			return
		}
		n := 0
		if !req.Stream {
			var text string
			for s := range m.say(c.Request.Context()) {
				n++
				text += s
			}
			c.JSON(http.StatusOK, wholeReply(&req, text, n))
		} else {
			n = streamReply(c.Writer, c.Request, m, &req)
		}
		desk.record(account, promptTokens, n)
	})
	return engine
}

func wholeReply(req *openai.ChatCompletionRequest, text string, n int) *openai.ChatCompletionResponse {
	return &openai.ChatCompletionResponse{
		ID:      newID(),
		Object:  "chat.completion",
		Created: time.Now().Unix(),
		Model:   req.Model,
		Choices: []openai.ChatCompletionChoice{{
			Message:      openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: text},
			FinishReason: openai.FinishReasonStop,
		}},
		Usage: openai.Usage{PromptTokens: promptTokens, CompletionTokens: n, TotalTokens: promptTokens + n},
	}
}

func streamReply(w http.ResponseWriter, r *http.Request, m mode, req *openai.ChatCompletionRequest) (n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flusher := w.(http.Flusher)
	chunk := openai.ChatCompletionStreamResponse{
		ID:      newID(),
		Object:  "chat.completion.chunk",
		Created: time.Now().Unix(),
		Model:   req.Model,
	}
	send := func(choice openai.ChatCompletionStreamChoice) {
		chunk.Choices = []openai.ChatCompletionStreamChoice{choice}
		data, err := json.Marshal(chunk)
		if err != nil {
			return
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		flusher.Flush()
	}
	for text := range m.say(r.Context()) {
		delta := openai.ChatCompletionStreamChoiceDelta{Content: text}
		if n == 0 {
			delta.Role = openai.ChatMessageRoleAssistant
		}
		send(openai.ChatCompletionStreamChoice{Delta: delta})
		n++
	}
	send(openai.ChatCompletionStreamChoice{FinishReason: openai.FinishReasonStop})
	fmt.Fprint(w, "data: [DONE]\n\n")
	flusher.Flush()
	return n
}

func newID() string {
	var b [12]byte
	rand.Read(b[:])
	return "chatcmpl-" + hex.EncodeToString(b[:])
}

// A desk does for the handlers written by hand what keys, limits and usage do
// for the Handler.
type desk struct {
	keys map[string]string // accounts by secret

	mu               sync.Mutex
	requests, tokens map[string]*rate.Limiter
	used             map[string]int
}

func newDesk() *desk {
	return &desk{
		keys:     map[string]string{secret: "acme"},
		requests: make(map[string]*rate.Limiter),
		tokens:   make(map[string]*rate.Limiter),
		used:     make(map[string]int),
	}
}

// admit returns the account that a request is of, and the status with which to
// answer it if it is not 200.
func (d *desk) admit(authorization string) (account string, status int) {
	key, ok := strings.CutPrefix(authorization, "Bearer ")
	account, known := d.keys[key]
	if !ok || !known {
		return "", http.StatusUnauthorized
	}
	if !d.limiter(d.requests, account).Allow() {
		return "", http.StatusTooManyRequests
	}
	return account, http.StatusOK
}

// check returns the status with which to answer req if it is not 200.
func (d *desk) check(account string, req *openai.ChatCompletionRequest) int {
	if req.Model == "" || len(req.Messages) == 0 {
		return http.StatusBadRequest
	}
	tokens := req.MaxTokens //lint:ignore SA1019 it is what the requests have
	for i := range req.Messages {
		tokens += len(req.Messages[i].Content) / 4
	}
	if !d.limiter(d.tokens, account).AllowN(time.Now(), tokens) {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}

func (d *desk) limiter(of map[string]*rate.Limiter, account string) *rate.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := of[account]
	if l == nil {
		l = rate.NewLimiter(1<<34, 1<<40)
		of[account] = l
	}
	return l
}

func (d *desk) record(account string, prompt, completion int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[account] += prompt + completion
}

// newOllama returns Ollama's middleware in front of a stub that answers as its
// server does. It knows neither keys nor limits nor usage.
func newOllama(m mode) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/v1/chat/completions", middleware.ChatMiddleware(), func(c *gin.Context) {
		var req api.ChatRequest
		if err := c.ShouldBindJSON(&req); err != nil {
			c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"error": err.Error()})
			return
		}
		piece := func(text string) api.ChatResponse {
			return api.ChatResponse{Model: req.Model, CreatedAt: time.Now().UTC(), Message: api.Message{Role: "assistant", Content: text}}
		}
		end := func(text string, n int) api.ChatResponse {
			last := piece(text)
			last.Done, last.DoneReason = true, "stop"
			last.Metrics = api.Metrics{PromptEvalCount: promptTokens, EvalCount: n}
			return last
		}
		n := 0
		if req.Stream != nil && !*req.Stream {
			var text string
			for s := range m.say(c.Request.Context()) {
				n++
				text += s
			}
			c.JSON(http.StatusOK, end(text, n))
			return
		}
		c.Header("Content-Type", "application/x-ndjson")
		send := func(r api.ChatResponse) {
			data, err := json.Marshal(r)
			if err != nil {
				return
			}
			c.Writer.Write(append(data, '\n'))
			c.Writer.Flush()
		}
		for text := range m.say(c.Request.Context()) {
			n++
			send(piece(text))
		}
		send(end("", n))
	})
	return engine
}
