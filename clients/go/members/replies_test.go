package members

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
)

// A replyType is a reply of an SDK, or an event of one.
type replyType struct {
	name, path string
	typ        reflect.Type
	requests   []string
}

// How a member is missing from replies.
const (
	absent  = "absent"             // from all replies, and clients know that it can be
	missing = "required, absent"   // from all replies, although the type demands it
	never   = "never sent"         // a variant of a union
	notThe  = "not a type of ours" // a variant that the SDK does not know
)

// A replyWalk compares replies with their type.
type replyWalk struct {
	known map[string]string // from the path of a member or a variant to how it is missing
	seen  map[string]bool
}

func (r replyType) findings(t *testing.T, s *server) []finding {
	w := &replyWalk{known: make(map[string]string), seen: make(map[string]bool)}
	for _, request := range r.requests {
		reply := s.sendText(r.path, request, strings.Contains(r.name, "Anthropic"))
		documents := []string{reply}
		if strings.HasSuffix(r.name, "stream") {
			documents = eventsOf(reply)
		}
		require.NotEmpty(t, documents)
		for _, text := range documents {
			var v any
			require.NoError(t, json.Unmarshal([]byte(text), &v), text)
			w.value(r.typ, "", v)
		}
	}
	var list []finding
	for path, behaviour := range w.known {
		if !w.seen[path] {
			list = append(list, finding{r.name + " reply", path, behaviour})
		}
	}
	return list
}

// wholeReplies are types that are compared by themselves, and are not again within events.
var wholeReplies = []reflect.Type{typeOf[responses.Response](), typeOf[responses.ResponseOutputItemUnion](), typeOf[anthropic.Message]()}

// eventsOf returns the data of the events of a stream.
func eventsOf(stream string) []string {
	var list []string
	for line := range strings.Lines(stream) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && !strings.HasPrefix(data, "[DONE]") {
			list = append(list, data)
		}
	}
	return list
}

// value compares a value with its type.
func (w *replyWalk) value(t reflect.Type, path string, v any) {
	t = plain(t)
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i := range v {
				w.value(t.Elem(), path+"[]", v[i])
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct || t == timeType || path != "" && slices.Contains(wholeReplies, t) {
			return
		}
		if variants := replyVariants(t); len(variants) > 0 {
			w.variant(variants, path, v)
			return
		}
		w.object(t, path, v)
	}
}

func (w *replyWalk) object(t reflect.Type, path string, v map[string]any) {
	for _, m := range membersOf(t) {
		at := strings.TrimPrefix(path+"."+m.name, ".")
		w.known[at] = absent
		if m.required {
			w.known[at] = missing
		}
		if member, ok := v[m.name]; ok {
			w.seen[at] = true
			w.value(m.typ, at, member)
		}
	}
}

// variant compares an object with the variant of a union that has its type.
func (w *replyWalk) variant(variants map[string]reflect.Type, path string, v map[string]any) {
	for name := range variants {
		w.known[path+"["+name+"]"] = never
	}
	name, _ := v["type"].(string)
	at := path + "[" + name + "]"
	if t, ok := variants[name]; ok {
		w.seen[at] = true
		w.object(t, at, v)
		return
	}
	w.known[at] = notThe
}

// replyVariants returns the variants of a union by their type. They are the results of its methods.
func replyVariants(t reflect.Type) map[string]reflect.Type {
	variants := make(map[string]reflect.Type)
	for m := range t.Methods() {
		if !strings.HasPrefix(m.Name, "As") || m.Type.NumIn() != 1 || m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Struct {
			continue
		}
		variant := m.Type.Out(0)
		for _, member := range membersOf(variant) {
			if member.name == "type" && member.constant != "" {
				variants[member.constant] = variant
			}
		}
	}
	return variants
}
