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
		"root": []byte(`"/models/a"`), "parent": []byte("null"), "about": []byte(`"\u0061 is <a>"`), "n": []byte(`["a"]`),
	}
	before := maps.Clone(members)
	assert.Equal(t, map[string]json.RawMessage{"about": []byte(`"b is \u003cb\u003e"`), "n": []byte(`["a"]`)}, pattern.RenameMembers(members, "a", "b"))
	assert.Equal(t, before, members, "they are the caller's")
	same := pattern.RenameMembers(members, "a", "a")
	assert.Equal(t, members, same)
	delete(same, "root")
	assert.Equal(t, before, members)
	assert.Nil(t, pattern.RenameMembers(nil, "a", "b"))
}
