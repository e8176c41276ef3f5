// Cache keeps replies to chats. A request that asks for exactly the same gets the same reply, whole
// or streamed, with its reasoning, tool calls and usage. The header X-Cache tells whether it did.
//
//	go run ./examples/cache
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// cached is the target of requests that the cache answers, as records have it.
const cached = "cache"

// A cache is a Backend that keeps the chats of another one. Everything else passes.
type cache struct {
	llmhttp.Backend
	shared bool // accounts get replies to each other's requests
	size   int  // the number of replies

	mu      sync.Mutex // guards the field below
	replies map[key][]*llm.ChatChunk
}

// Unwrap lets everything pass that the cache does not have: see [llmhttp.As].
func (c *cache) Unwrap(context.Context) llmhttp.Backend { return c.Backend }

// A key is the hash of what a reply depends on.
type key [sha256.Size]byte

// keyOf returns the key of a request. Whether it asks for a stream makes no difference to a Backend.
func (c *cache) keyOf(ctx context.Context, req *llm.ChatRequest) (key, error) {
	asked := *req
	asked.Stream, asked.StreamOptions = false, nil
	body, err := json.Marshal(&asked)
	if info := llmhttp.RequestInfoFrom(ctx); info != nil && !c.shared {
		body = append(append(body, '\n'), info.Account...)
	}
	return sha256.Sum256(body), err
}

// Chat implements [llmhttp.Backend].
func (c *cache) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	key, err := c.keyOf(ctx, req)
	if err != nil {
		return llm.Fail(err)
	}
	if chunks := c.get(key); chunks != nil {
		return c.replay(ctx, chunks)
	}
	_ = llmhttp.SetReplyHeader(ctx, "X-Cache", "miss") // fails if the reply has begun, which is no harm
	var chunks []*llm.ChatChunk
	return llm.Tee(c.Backend.Chat(ctx, req), func(chunk *llm.ChatChunk, err error) {
		switch {
		case err != nil:
			chunks = nil
		case chunk != nil:
			chunks = append(chunks, chunk.Clone())
		case ctx.Err() == nil: // otherwise the reply may not be complete
			c.put(key, chunks)
		}
	})
}

// replay returns the stream of a reply.
func (c *cache) replay(ctx context.Context, chunks []*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		_ = llmhttp.SetReplyHeader(ctx, "X-Cache", "hit")
		_, end := llmhttp.StartTry(ctx, cached) // the record has the target, which price looks at
		defer end(nil)
		for _, chunk := range chunks {
			if !yield(chunk.Clone(), nil) {
				return
			}
		}
	}
}

func (c *cache) get(k key) []*llm.ChatChunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies[k]
}

// put adds a reply. If there is no room, any other one goes.
func (c *cache) put(k key, chunks []*llm.ChatChunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.replies {
		if len(c.replies) < c.size {
			break
		}
		delete(c.replies, other)
	}
	c.replies[k] = chunks
}

// price returns what a request costs: nothing if the cache has answered it, unless hits are priced as
// other requests. Its tokens are recorded in both cases.
func price(hits bool) func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	return func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		if r.Target == cached && !hits {
			return llmhttp.Cost{}, nil
		}
		const million = 1_000_000
		return llmhttp.Cost{
			Input:  llm.MoneyUnit.Scale(r.Units.PromptTokens, million),
			Output: (llm.USD(4)).Scale(r.Units.CompletionTokens, million),
		}, nil
	}
}

// newHandler returns a Handler with a cache in front of b.
func newHandler(b llmhttp.Backend, keys llmhttp.KeyStore, usage llmhttp.UsageStore, shared, priced bool) *llmhttp.Handler {
	c := &cache{Backend: b, shared: shared, size: 1000, replies: make(map[key][]*llm.ChatChunk)}
	return llmhttp.NewHandler(c, keys, &llmhttp.Options{Usage: usage, Price: price(priced)})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	shared := flag.Bool("shared", false, "accounts share the cache")
	priced := flag.Bool("priced", false, "hits cost what misses cost")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := newHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), memory.NewUsageStore(), *shared, *priced)
	server := &http.Server{
		Addr:              *addr,
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute,
	}
	log.Printf("listening on http://%s; the key is sk-demo", *addr)
	if err := llmhttp.Serve(ctx, server, h, nil); err != nil {
		log.Fatal(err)
	}
}
