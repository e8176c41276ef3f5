// Package cachetest has a scripted model behind a prompt cache like Anthropic's, for tests: what is cached is
// a prefix of the prompt that ends where the request has a mark, cache_control. It speaks chat completions as
// LiteLLM does, and Messages.
package cachetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// A block is a piece of a prompt.
type block struct {
	text    string
	isEmpty bool   // it has nothing but labels
	mark    string // how long the prompt up to the block's end is cached: "5m" or "1h"; not at all if empty
}

// Tokens are numbers of tokens.
type Tokens struct {
	Prompt     int // all of the prompt
	Read       int // of it, those read from the cache
	Written    int // of it, those written to the cache, for 5 minutes or an hour
	WrittenFor llm.CacheWrites
	Completion int
}

// Prices are those of Dollars, as package pricing reads them.
const Prices = `{"default": {"input": "3", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6", "output": "15"}}`

// Share returns the part of the prompt that was read from the cache, from 0 to 1.
func (t *Tokens) Share() float64 { return float64(t.Read) / float64(max(t.Prompt, 1)) }

// Dollars returns the price: $3 for a million tokens of a prompt, a tenth of it for those that are read from the
// cache, 1.25 and 2 times as much for those that are written for 5 minutes and an hour, and $15 for a million
// of a reply, as Anthropic's prices are.
func (t *Tokens) Dollars() float64 {
	hour := t.WrittenFor[time.Hour]
	minutes := int64(t.Written) - hour
	rest := t.Prompt - t.Read - t.Written
	return (float64(rest)*3 + float64(t.Read)*0.3 + float64(minutes)*3.75 + float64(hour)*6 + float64(t.Completion)*15) / 1e6
}

// add adds the numbers of other.
func (t *Tokens) add(other *Tokens) {
	t.Prompt += other.Prompt
	t.Read += other.Read
	t.Written += other.Written
	t.WrittenFor = t.WrittenFor.Plus(other.WrittenFor)
	t.Completion += other.Completion
}

// A cache has the hashes of the prefixes that it knows. Nothing expires.
type cache struct {
	mu       sync.Mutex // guards prefixes
	prefixes map[[sha256.Size]byte]bool
}

// The bounds of Anthropic's API: a prompt has at most so many marks, and before each of them so many blocks are
// looked at for a prefix that is known.
const (
	maxMarks    = 4
	maxLookback = 20
)

// read returns what becomes of a prompt: what is read from the cache and what is written to it. It refuses what
// Anthropic's API refuses. If automatic is true, each block is the end of a prefix, marks are refused, and
// nothing is written for a price.
func (c *cache) read(prompt []block, automatic bool) (Tokens, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prefixes == nil {
		c.prefixes = make(map[[sha256.Size]byte]bool)
	}
	var t Tokens
	var marks []int
	hashes, ends := make([][sha256.Size]byte, len(prompt)), make([]int, len(prompt)) // of the prefixes, and their tokens
	for i, b := range prompt {
		if i > 0 {
			hashes[i] = hashes[i-1]
		}
		hashes[i] = sha256.Sum256(append(hashes[i][:], b.text...))
		t.Prompt += tokens(b.text)
		ends[i] = t.Prompt
		switch {
		case automatic && b.mark != "":
			return t, errors.New("cache_control: Extra inputs are not permitted")
		case automatic:
		case b.mark == "":
			continue
		case b.mark != "5m" && b.mark != "1h":
			return t, fmt.Errorf("cache_control.ttl: %q is neither 5m nor 1h", b.mark)
		case b.isEmpty:
			return t, errors.New("cache_control cannot be set for empty text blocks")
		case b.mark == "1h" && len(marks) > 0 && prompt[marks[len(marks)-1]].mark == "5m":
			return t, errors.New("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
		}
		marks = append(marks, i)
	}
	if len(marks) > maxMarks && !automatic {
		return t, fmt.Errorf("a maximum of %d blocks with cache_control may be provided, found %d", maxMarks, len(marks))
	}
	known := c.longest(hashes, marks)
	if known >= 0 {
		t.Read = ends[known]
	}
	at := t.Read
	for _, m := range marks {
		if ends[m] > at && !automatic {
			t.WrittenFor = t.WrittenFor.Plus(llm.CacheWrites{lifetimes[prompt[m].mark]: int64(ends[m] - at)})
			t.Written += ends[m] - at
			at = ends[m]
		}
		c.prefixes[hashes[m]] = true
	}
	return t, nil
}

var lifetimes = map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour}

// longest returns the index of the block with which the longest known prefix ends that is found from a mark, or -1.
func (c *cache) longest(hashes [][sha256.Size]byte, marks []int) int {
	for i := len(marks) - 1; i >= 0; i-- {
		for j := marks[i]; j >= 0 && marks[i]-j < maxLookback; j-- {
			if c.prefixes[hashes[j]] {
				return j
			}
		}
	}
	return -1
}

// tokens estimates the tokens of a text.
func tokens(text string) int { return (len(text) + 3) / 4 }
