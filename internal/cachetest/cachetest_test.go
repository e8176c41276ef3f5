package cachetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// prompt returns blocks of 4 tokens each. A block is followed by the end of its mark, if it has one.
func prompt(blocks ...string) (list []block) {
	for _, s := range blocks {
		if s == "5m" || s == "1h" {
			list[len(list)-1].mark = s
		} else {
			list = append(list, block{text: s + "               "[:16-len(s)]})
		}
	}
	return list
}

func TestCache(t *testing.T) {
	c := new(cache)
	for _, step := range []struct {
		name          string
		prompt        []block
		read, written int
		writtenFor    llm.CacheWrites
	}{
		{"no mark", prompt("a", "b"), 0, 0, nil},
		{"the first time", prompt("a", "5m", "b"), 0, 4, llm.CacheWrites{5 * time.Minute: 4}},
		{"the same", prompt("a", "5m", "c"), 4, 0, nil},
		{"longer", prompt("a", "b", "c", "5m"), 4, 8, llm.CacheWrites{5 * time.Minute: 8}},
		{"a mark further on", prompt("a", "b", "c", "d", "5m", "e"), 12, 4, llm.CacheWrites{5 * time.Minute: 4}},
		{"another beginning", prompt("x", "b", "c", "d", "5m"), 0, 16, llm.CacheWrites{5 * time.Minute: 16}},
		{"two lifetimes", prompt("y", "1h", "b", "5m"), 0, 8, llm.CacheWrites{time.Hour: 4, 5 * time.Minute: 4}},
		{"without a mark nothing is read", prompt("a", "b", "c"), 0, 0, nil},
	} {
		got, err := c.read(step.prompt, false)
		require.NoError(t, err, step.name)
		assert.Equal(t, Tokens{Prompt: 4 * len(step.prompt), Read: step.read, Written: step.written, WrittenFor: step.writtenFor}, got, step.name)
	}
	for want, blocks := range map[string][]block{
		"a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block": prompt("a", "5m", "b", "1h"),
		"a maximum of 4 blocks with cache_control may be provided, found 5":                 prompt("a", "5m", "b", "5m", "c", "5m", "d", "5m", "e", "5m"),
		"cache_control cannot be set for empty text blocks":                                 {{isEmpty: true, mark: "5m"}},
		`cache_control.ttl: "2h" is neither 5m nor 1h`:                                      {{text: "a", mark: "2h"}},
	} {
		_, err := c.read(blocks, false)
		assert.EqualError(t, err, want)
	}
	_, err := c.read(prompt("a", "5m"), true)
	assert.Error(t, err)
	c = new(cache)
	for _, read := range []int{0, 4} {
		got, err := c.read(prompt("a", "b")[:1+read/4], true)
		require.NoError(t, err)
		assert.Equal(t, read, got.Read)
		assert.Zero(t, got.Written)
	}
}
