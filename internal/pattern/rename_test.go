package pattern_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/pattern"
)

func TestRename(t *testing.T) {
	for _, test := range []struct{ text, old, name, want string }{
		{"", "t", "m", ""},
		{"tokens a lot: tokens", "t", "m", "tokens a lot: tokens"},
		{"t refuses, t.", "t", "m", "m refuses, m."},
		{"t", "t", "m", "m"},
		{"the model `gpt-4` is not gpt-4o, gpt-4-turbo, my-gpt-4 or org/gpt-4", "gpt-4", "large", "the model `large` is not gpt-4o, gpt-4-turbo, my-gpt-4 or org/gpt-4"},
		{"gpt-4: \"gpt-4\" (gpt-4) gpt-4... gpt-4", "gpt-4", "large", "large: \"large\" (large) large... large"},
		{"a.b and a.b", "a.b", "a.b.c", "a.b.c and a.b.c"},
		{"aaa aa", "aa", "b", "aaa b"},
		{"x", "", "m", "x"},
		{"über", "ber", "m", "über"},
	} {
		assert.Equal(t, test.want, pattern.Rename(test.text, test.old, test.name), "%q", test.text)
	}
}

func TestRenameMembers(t *testing.T) {
	members := map[string]json.RawMessage{
		"root": []byte(`"/models/a-7b"`), "parent": []byte("null"), "about": []byte(`"\u0061-7b is <a>"`), "n": []byte(`["b", 1.50]`),
		"path": []byte(`"/models/a-7b/w"`), "args": []byte(`{"-m":["\u0061-7b"]}`), "links": []byte(`{"/a-7b":null}`),
		"base": []byte(`["c-7b",1e999]`), "like": []byte(`"c-7b-it"`),
	}
	before := maps.Clone(members)
	assert.Equal(t, map[string]json.RawMessage{"about": []byte(`"my-a-7b is \u003ca\u003e"`), "n": []byte(`["b", 1.50]`), "like": []byte(`"c-7b-it"`)},
		pattern.RenameMembers(members, "a-7b", "my-a-7b", "a-7b", "c-7b"))
	assert.Equal(t, before, members, "they are the caller's")

	words := map[string]json.RawMessage{"type": []byte(`"chat"`), "about": []byte(`"A large model"`), "root": []byte(`"chat"`)}
	assert.Equal(t, map[string]json.RawMessage{"type": []byte(`"chat"`), "about": []byte(`"A large model"`)}, pattern.RenameMembers(words, "chat", "fast", "large"))

	same := pattern.RenameMembers(members, "a-7b", "a-7b", "c-7b")
	delete(members, "base")
	assert.Equal(t, members, same)
	same = pattern.RenameMembers(members, "", "x")
	assert.Equal(t, members, same)
	delete(same, "root")
	assert.Contains(t, members, "root")
	assert.Nil(t, pattern.RenameMembers(nil, "a", "b"))
}
