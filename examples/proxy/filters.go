package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/textfilter"
)

// forbidden stands for any check of a sentence.
var forbidden = regexp.MustCompile(`(?i)\bswordfish\b`)

// guard returns a Backend that refuses forbidden texts: in requests, and in replies before clients
// see the sentence. examples/guardrail explains how, and checks tool calls too.
func guard(b llmhttp.Backend) llmhttp.Backend {
	check := func(text string) error {
		if forbidden.MatchString(text) {
			return fmt.Errorf("forbidden: %w", textfilter.ErrContentFiltered)
		}
		return nil
	}
	return textfilter.New(b, func(context.Context) textfilter.Filter {
		return textfilter.Filter{
			Request: func(_ textfilter.Kind, text string) (string, error) { return text, check(text) },
			Reply: func(t *textfilter.ReplyText) (release, hold string, err error) {
				end := len(t.Text)
				if !t.End {
					end = strings.LastIndexAny(t.Text, ".!?") + 1
				}
				return t.Text[:end], t.Text[end:], check(t.Text[:end])
			},
		}
	})
}

// A cache keeps whole replies of one Backend by the request and the account, up to maxReplies.
// examples/cache explains how, and prices the replies.
type cache struct {
	llmhttp.Backend
	mu      sync.Mutex // guards replies
	replies map[[sha256.Size]byte][]*llm.ChatChunk
}

const maxReplies = 1000

func newCache(b llmhttp.Backend) *cache {
	return &cache{Backend: b, replies: make(map[[sha256.Size]byte][]*llm.ChatChunk)}
}

// Unwrap lets everything pass that the cache does not have: see [llmhttp.As].
func (c *cache) Unwrap(context.Context) llmhttp.Backend { return c.Backend }

func (c *cache) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	asked := *req
	asked.Stream, asked.StreamOptions = false, nil
	body, err := json.Marshal(&asked)
	if err != nil {
		return llm.Fail(err)
	}
	key := sha256.Sum256(append([]byte(tenantOf(ctx).Name+"\n"), body...))
	c.mu.Lock()
	kept := c.replies[key]
	c.mu.Unlock()
	if kept != nil {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for _, chunk := range kept {
				if !yield(chunk.Clone(), nil) {
					return
				}
			}
		}
	}
	var chunks []*llm.ChatChunk
	return llm.Tee(c.Backend.Chat(ctx, req), func(chunk *llm.ChatChunk, err error) {
		switch {
		case chunk != nil:
			chunks = append(chunks, chunk.Clone())
		case err == nil && ctx.Err() == nil:
			c.put(key, chunks)
		}
	})
}

// put adds a reply. If there is no room, all others go.
func (c *cache) put(key [sha256.Size]byte, chunks []*llm.ChatChunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replies) >= maxReplies {
		clear(c.replies)
	}
	c.replies[key] = chunks
}
