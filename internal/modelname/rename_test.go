package modelname_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/modelname"
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
		assert.Equal(t, test.want, modelname.Rename(test.text, test.old, test.name), "%q", test.text)
	}
}

func TestRenameMembers(t *testing.T) {
	type members = map[string]json.RawMessage
	model := members{
		"root": []byte(`"/models/a-7b"`), "parent": []byte("null"), "about": []byte(`"\u0061-7b is <a>"`), "n": []byte(`["b", 1.50]`),
		"path": []byte(`"/models/a-7b/w"`), "args": []byte(`{"-m":["\u0061-7b"]}`), "links": []byte(`{"/a-7b":null}`),
		"base": []byte(`["c-7b",1e999]`), "like": []byte(`"c-7b-it"`), "broken": []byte(`{`),
	}
	words := members{"type": []byte(`"chat"`), "about": []byte(`"A large model"`), "root": []byte(`"chat"`)}
	without := func(m members, names ...string) members {
		m = maps.Clone(m)
		for _, name := range names {
			delete(m, name)
		}
		return m
	}
	for name, test := range map[string]struct {
		members   members
		old, name string
		hidden    []string
		want      members
	}{
		"renames and removes": {model, "a-7b", "my-a-7b", []string{"a-7b", "c-7b"},
			members{"about": []byte(`"my-a-7b is \u003ca\u003e"`), "n": []byte(`["b", 1.50]`), "like": []byte(`"c-7b-it"`)}},
		"keeps plain words":                 {words, "chat", "fast", []string{"large"}, without(words, "root")},
		"removes hidden names":              {model, "a-7b", "a-7b", []string{"c-7b"}, without(model, "base", "broken")},
		"keeps everything without old name": {model, "", "x", nil, model},
		"nil":                               {nil, "a", "b", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.members)
			got := modelname.RenameMembers(test.members, test.old, test.name, test.hidden...)
			assert.Equal(t, test.want, got)
			clear(got)
			assert.Equal(t, before, test.members, "the argument is not changed")
		})
	}
}
