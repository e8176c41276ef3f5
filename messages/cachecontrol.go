// The member cache_control, which marks where a part of the prompt ends that servers cache. It is kept in
// the Extra of what a block, a tool or the request becomes.

package messages

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

// A cacheControl marks the end of what is to be cached. Most blocks have none.
type cacheControl struct {
	CacheControl *raw `json:"cache_control"`
}

// mark sets the mark of extra to that of c, if there is one. A block that becomes nothing, such as an empty
// text, marks what comes before it in its turn: extra is nil if that is nothing, and then there is no mark.
// Unknown types and lifetimes are left to the server.
func (c *cacheControl) mark(extra *llm.Extra) error {
	if c.CacheControl == nil {
		return nil
	}
	var known struct {
		Type string `json:"type"`
		TTL  string `json:"ttl"`
	}
	err := decode(*c.CacheControl, &known)
	if err == nil && known.Type == "" {
		err = missingField("type")
	}
	if err != nil {
		return prefixPath(err, promptcache.Member)
	}
	if extra != nil {
		promptcache.Set(extra, json.RawMessage(*c.CacheControl))
	}
	return nil
}

// lastExtra returns the Extra of the last part of c, or nil.
func lastExtra(c llm.Content) *llm.Extra {
	if len(c) == 0 {
		return nil
	}
	return &c[len(c)-1].Extra
}

// lastExtra returns the Extra of what comes last in the turn so far, or nil if the turn is empty.
func (c *turnConverter) lastExtra() *llm.Extra {
	if n := len(c.assistant.ToolCalls); n > 0 {
		return &c.assistant.ToolCalls[n-1].Extra
	}
	if n := len(c.results); n > 0 && len(c.parts) == 0 {
		return lastExtra(c.results[n-1].Content)
	}
	return lastExtra(c.parts)
}

// lastToolExtra returns the Extra of the last tool of req, or nil.
func lastToolExtra(req *llm.ChatRequest) *llm.Extra {
	if len(req.Tools) == 0 {
		return nil
	}
	return &req.Tools[len(req.Tools)-1].Extra
}
