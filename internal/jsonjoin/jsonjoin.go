// Package jsonjoin joins JSON values and texts that come in pieces.
package jsonjoin

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A Text is a text that arrives in pieces. A single piece is not copied.
type Text struct {
	first string
	all   []byte
}

func (t *Text) Add(s string) {
	switch {
	case s == "":
	case t.all != nil:
		t.all = append(t.all, s...)
	case t.first == "":
		t.first = s
	default:
		t.all = append([]byte(t.first), s...)
	}
}

func (t *Text) String() string {
	if t.all != nil {
		return string(t.all)
	}
	return t.first
}

// A Members holds the values that arrived for each member of an Extra.
type Members map[string][]json.RawMessage

// Add adds the members of e, except for those that are null: they mean the same
// as no member.
func (x *Members) Add(e map[string]json.RawMessage) {
	for name, value := range e {
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		if *x == nil {
			*x = make(Members, len(e))
		}
		(*x)[name] = append((*x)[name], value)
	}
}

// Join returns the members joined. Strings are concatenated if texts is true;
// otherwise the last one is kept.
func (x Members) Join(texts bool) map[string]json.RawMessage {
	if len(x) == 0 {
		return nil
	}
	e := make(map[string]json.RawMessage, len(x))
	for name, values := range x {
		e[name] = Values(values, texts, 0)
	}
	return e
}

// Values joins JSON values of one kind: strings (if texts is true) and arrays are concatenated,
// objects are merged. Of other values the last one is kept. Null is kept only if there is nothing
// else. depth is the number of objects around the values.
func Values(values []json.RawMessage, texts bool, depth int) json.RawMessage {
	last := values[len(values)-1]
	values = slices.DeleteFunc(values, func(v json.RawMessage) bool { return string(v) == "null" })
	if len(values) == 0 {
		return last
	}
	last = values[len(values)-1]
	for _, v := range values {
		if v[0] != last[0] {
			return last
		}
	}
	switch {
	case len(values) == 1:
		return last
	case last[0] == '"' && texts:
		return concatenate(values, "")
	case last[0] == '[':
		return concatenate(values, ",")
	case last[0] == '{' && depth < MaxDepth:
		return mergeObjects(values, texts, depth+1)
	}
	return last
}

// concatenate joins what is between the first and the last byte of each value.
func concatenate(values []json.RawMessage, separator string) json.RawMessage {
	first, end := values[0][0], values[0][len(values[0])-1]
	joined := []byte{first}
	for _, v := range values {
		inner := bytes.TrimSpace(v[1 : len(v)-1])
		if first == '"' {
			inner = v[1 : len(v)-1]
		}
		if len(inner) > 0 && len(joined) > 1 {
			joined = append(joined, separator...)
		}
		joined = append(joined, inner...)
	}
	return append(joined, end)
}

// MaxDepth is how many levels of nested objects are merged. Each level takes time and
// memory for everything inside it.
const MaxDepth = 8

// mergeObjects merges objects member by member, in the order of their names.
func mergeObjects(values []json.RawMessage, texts bool, depth int) json.RawMessage {
	members := make(map[string][]json.RawMessage)
	for _, v := range values {
		var object map[string]json.RawMessage
		if json.Unmarshal(v, &object) != nil {
			return values[len(values)-1]
		}
		for name, value := range object {
			members[name] = append(members[name], value)
		}
	}
	joined := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(jsonwire.AppendString(joined, name), ':')
		joined = append(joined, Values(members[name], texts, depth)...)
	}
	return append(joined, '}')
}
