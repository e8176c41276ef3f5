package upstream

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const likeA = `{"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`

// alikes are pairs of chunks, of which the second may or may not be like the
// first.
var alikes = []struct {
	name          string
	first, second string
	alike         bool
}{
	{"same", likeA, likeA, true},
	{"another text", likeA, `{"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"\u00e9 \"é\" 😀"},"finish_reason":null}]}`, true},
	{"no text", likeA, `{"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}`, true},
	{"more than a text", likeA, `{"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"a","refusal":"b"},"finish_reason":null}]}`, false},
	{"another time", likeA, `{"id":"1","object":"chat.completion.chunk","created":6,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`, false},
	{"the end", likeA, `{"id":"1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, false},
	{"shorter than the form", `{"choices":[{"delta":{"content":"aaaa"}}]}`, `{"choices":[{"delta":{"content":"}}]}`, false},
	{"not UTF-8", likeA, "{\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"},\"finish_reason\":null}]}", false},
	{"after one that ends", `{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`, false},
	{"after one with usage", `{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}`, `{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":1}}`, false},
	{"after one with more", `{"choices":[{"delta":{"content":"a","x":1}}]}`, `{"choices":[{"delta":{"content":"b","x":1}}]}`, false},
	{"after reasoning", `{"choices":[{"delta":{"content":"a","reasoning_content":"r"}}]}`, `{"choices":[{"delta":{"content":"b","reasoning_content":"r"}}]}`, false},
	{"after a call", `{"choices":[{"delta":{"content":"a","tool_calls":[{"index":0}]}}]}`, `{"choices":[{"delta":{"content":"b","tool_calls":[{"index":0}]}}]}`, false},
	{"after two choices", `{"choices":[{"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"b"}},{"index":1,"delta":{"content":"a"}}]}`, false},
	{"without names", `{"choices":[{"index":3,"delta":{"content":"a"}}]}`, `{"choices":[{"index":3,"delta":{"content":"b"}}]}`, true},
	{"after one in two places", `{"choices":[{"delta":{"content":"a"},"message":{"content":[{"type":"text","text":"c"}]}}]}`, `{"choices":[{"delta":{"content":"b"},"message":{"content":[{"type":"text","text":"c"}]}}]}`, false},
	{"after one that was taken back", `{"choices":[{"delta":{"content":"a"},"message":{"content":null}}]}`, `{"choices":[{"delta":{"content":"b"},"message":{"content":null}}]}`, false},
	{"content that is no string", `{"choices":[{"delta":{"content":12}}]}`, `{"choices":[{"delta":{"content":13}}]}`, false},
}

// A chunk that is like the one before is what it is on its own.
func TestAlike(t *testing.T) {
	for _, test := range alikes {
		t.Run(test.name, func(t *testing.T) {
			var d decoder
			_, err := d.chunk([]byte(test.first))
			assert.NoError(t, err)
			assert.Equal(t, test.alike, d.alike([]byte(test.second)) != nil)
			checkAlike(t, test.first, test.second)
			checkAlike(t, test.second, test.first)
		})
	}
}

func checkAlike(t *testing.T, first, second string) {
	var d, fresh decoder
	if _, err := d.chunk([]byte(first)); err != nil || len(d.mender.held) > 0 {
		return
	}
	want, wantErr := fresh.chunk([]byte(second))
	for range 2 {
		got, err := d.chunk([]byte(second))
		assert.Equal(t, wantErr == nil, err == nil)
		assert.Equal(t, want, got)
		if err != nil || len(d.mender.held) > 0 {
			return
		}
		assert.Equal(t, fresh.problem, d.problem)
	}
}

func FuzzAlike(f *testing.F) {
	for _, test := range alikes {
		f.Add(test.first, test.second)
	}
	f.Fuzz(func(t *testing.T, first, second string) { checkAlike(t, first, second) })
}
