package members

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A requestType is a request of an SDK.
type requestType struct {
	name, path string
	typ        reflect.Type
	depth      int // how many objects within each other are tried
	base       string
}

// What the server does with a member that does not reach the Backend.
const (
	refused  = "refused"  // with an error
	repeated = "repeated" // in the reply, without an effect
	ignored  = "ignored"
)

// maxDepth bounds the members within members that are tried.
const maxDepth = 8

// A requestWalk tries the members of a request.
type requestWalk struct {
	t        *testing.T
	s        *server
	request  requestType
	within   []reflect.Type // the structs around the member
	findings []finding
}

func (r requestType) findings(t *testing.T, s *server) []finding {
	w := &requestWalk{t: t, s: s, request: r}
	var base map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.base), &base))
	require.Equal(t, 200, s.send(r.path, base).status, "the base request")
	w.object(r.typ, "", base, func(v any) any { return v })
	return w.findings
}

// try sends two requests that differ in a member, and records what becomes of that. It reports whether the
// member reaches the Backend.
func (w *requestWalk) try(path string, without, with any) bool {
	if reflect.DeepEqual(without, with) {
		return true // it is what the object around it needs
	}
	a, b := w.s.send(w.request.path, without), w.s.send(w.request.path, with)
	behaviour := ignored
	switch {
	case b.status != 200:
		behaviour = refused
	case a.status != 200 || !reflect.DeepEqual(a.backend, b.backend):
		return true
	case a.reply != b.reply:
		behaviour = repeated
	}
	w.findings = append(w.findings, finding{w.request.name + " request", path, behaviour})
	if testing.Verbose() && behaviour == refused {
		w.t.Logf("%s %s: %s", w.request.name, path, b.reply)
	}
	return false
}

// object tries the members of an object of type t. put returns the request that has a value in its place.
func (w *requestWalk) object(t reflect.Type, path string, object map[string]any, put func(v any) any) {
	if len(w.within) == w.request.depth {
		return
	}
	for _, outer := range w.within {
		if outer == t {
			return
		}
	}
	w.within = append(w.within, t)
	defer func() { w.within = w.within[:len(w.within)-1] }()
	for _, m := range membersOf(t) {
		if m.constant != "" {
			continue
		}
		at := m.name
		if path != "" {
			at = path + "." + m.name
		}
		putMember := func(v any) any {
			with := maps.Clone(object)
			with[m.name] = v
			return put(with)
		}
		typ := plain(m.typ)
		if variants := variantsOf(typ); variants == nil && !m.required {
			without := maps.Clone(object)
			delete(without, m.name)
			value := sampleAt(at, typ, m.name)
			if typ.Kind() == reflect.Slice && isComposite(typ.Elem()) {
				w.elements(typ.Elem(), at, m.name, put(without), putMember)
				continue
			}
			if empty, ok := value.(map[string]any); ok && len(empty) == 0 && isObject(typ) {
				w.object(typ, at, empty, putMember)
				continue
			}
			if !w.try(at, put(without), putMember(value)) {
				continue
			}
		}
		w.value(typ, at, m.name, put(object), putMember)
	}
}

// value tries what is within a value of type t.
func (w *requestWalk) value(t reflect.Type, path, name string, without any, put func(v any) any) {
	switch {
	case variantsOf(t) != nil:
		w.variants(t, path, name, without, put)
	case t.Kind() == reflect.Slice:
		w.elements(t.Elem(), path, name, without, put)
	case isObject(t):
		if object, ok := sampleAt(path, t, name).(map[string]any); ok {
			w.object(t, path, object, put)
		}
	}
}

// elements tries the elements of an array, behind those that they need.
func (w *requestWalk) elements(t reflect.Type, path, name string, without any, put func(v any) any) {
	if !isComposite(t) {
		return
	}
	before, after := surroundings(w.request.name, name)
	list := func(elements ...any) []any {
		return append(append(append([]any{}, before...), elements...), after...)
	}
	if len(before) > 0 {
		without = put(list())
	}
	putElement := func(v any) any { return put(list(v)) }
	t = plain(t)
	if isObject(t) && !w.try(path+"[]", without, putElement(sampleAt(path+"[]", t, name))) {
		return
	}
	w.value(t, path+"[]", name, without, putElement)
}

func isComposite(t reflect.Type) bool {
	t = plain(t)
	return variantsOf(t) != nil || isObject(t)
}

// variants tries each variant of a union.
func (w *requestWalk) variants(t reflect.Type, path, name string, without any, put func(v any) any) {
	for _, f := range variantsOf(t) {
		typ := plain(f.Type)
		value := sampleAt(path, typ, name)
		at := path + "[" + variantName(f, value) + "]"
		if typ.Kind() == reflect.Slice && isComposite(typ.Elem()) {
			w.elements(typ.Elem(), path, name, without, put)
			continue
		}
		if !w.try(at, without, put(value)) {
			continue
		}
		w.value(typ, at, name, without, put)
	}
}

// variantName returns the type of a value, or else the name of a variant.
func variantName(f reflect.StructField, value any) string {
	if object, ok := value.(map[string]any); ok {
		for _, member := range []string{"type", "role"} {
			if name, ok := object[member].(string); ok {
				return name
			}
		}
	}
	return strings.ToLower(strings.TrimPrefix(f.Name, "Of"))
}

// sampleAt is like sample for a value at a path. A tool has another name than the one of the base request,
// which choices of a tool name.
func sampleAt(path string, t reflect.Type, name string) any {
	value := sample(t, name)
	if strings.Contains(path, "tools[]") {
		renameTool(value)
	}
	if object, ok := value.(map[string]any); ok && !strings.HasPrefix(path, "tool_choice") {
		tools, _ := object["tools"].([]any)
		for _, tool := range tools {
			renameTool(tool)
		}
	}
	return value
}

func renameTool(value any) {
	tool, _ := value.(map[string]any)
	if tool["name"] == samples["name"] {
		tool["name"] = "g"
	}
	for _, inner := range []string{"function", "custom"} {
		if tool[inner] != nil {
			renameTool(tool[inner])
		}
	}
}

// sample returns a value of type t for a member of the given name.
func sample(t reflect.Type, name string) any {
	t = plain(t)
	if value, ok := samples[name]; ok && fits(value, t) {
		return value
	}
	if variants := variantsOf(t); variants != nil {
		return sample(variants[0].Type, name)
	}
	switch t.Kind() {
	case reflect.Bool:
		return true
	case reflect.Int64, reflect.Int, reflect.Float64:
		return 1.0
	case reflect.Slice:
		if t == rawType {
			return map[string]any{}
		}
		return []any{sample(t.Elem(), name)}
	case reflect.Map, reflect.Interface:
		if name == "tools" {
			return map[string]any{"type": "function", "name": samples["name"], "function": map[string]any{"name": samples["name"]}}
		}
		return map[string]any{}
	case reflect.Struct:
		if t == timeType {
			return "2026-01-01T00:00:00Z"
		}
		object := make(map[string]any)
		for _, m := range membersOf(t) {
			if m.constant != "" {
				object[m.name] = m.constant
			} else if m.required {
				object[m.name] = sample(m.typ, m.name)
			}
		}
		if typ, ok := namedTypes[t.Name()]; ok {
			object["type"] = typ
		}
		typ, _ := object["type"].(string)
		maps.Copy(object, neededMembers[typ])
		return object
	}
	return "x"
}

// fits reports whether a sample can be a value of t.
func fits(value any, t reflect.Type) bool {
	switch value.(type) {
	case string:
		return t.Kind() == reflect.String
	case float64:
		return t.Kind() == reflect.Int64 || t.Kind() == reflect.Float64
	case bool:
		return t.Kind() == reflect.Bool
	case []any:
		return t.Kind() == reflect.Slice
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Interface || t == rawType
}

// namedTypes has the types of objects whose type is one of several, by the name of the struct.
var namedTypes = map[string]string{
	"ResponseComputerToolCallParam":    "computer_call",
	"SkillParams":                      "anthropic",
	"ToolChoiceTypesParam":             "web_search_preview",
	"ToolSearchToolBm25_20251119Param": "tool_search_tool_bm25_20251119",
	"ToolSearchToolRegex20251119Param": "tool_search_tool_regex_20251119",
	"WebSearchPreviewToolParam":        "web_search_preview",
	"WebSearchToolParam":               "web_search",
}

// neededMembers has members that objects of a type need although none is required by itself.
var neededMembers = map[string]map[string]any{
	"input_file":  {"file_data": samples["file_data"]},
	"input_image": {"image_url": samples["image_url"]},
}

// samples are valid values of members, by name. Others are "x", 1, true or the like.
var samples = map[string]any{
	"tool_choice":           "required",
	"id":                    "id_1",
	"parallel_tool_calls":   false,
	"text":                  "y",
	"arguments":             `{"a":1}`,
	"budget_tokens":         1024.0,
	"call_id":               "call_0",
	"data":                  "AA==",
	"description":           "d",
	"detail":                "low",
	"effort":                "low",
	"encoding_format":       "base64",
	"file_data":             "data:application/pdf;base64,AA==",
	"file_url":              "https://files.test/1",
	"format":                "wav",
	"image_url":             "data:image/png;base64,AA==",
	"inference_geo":         "us",
	"include":               []any{"message.output_text.logprobs"},
	"input_schema":          map[string]any{"type": "object"},
	"max_completion_tokens": 5.0,
	"max_output_tokens":     5.0,
	"max_tokens":            5.0,
	"media_type":            "image/png",
	"mode":                  "auto",
	"n":                     2.0,
	"name":                  "f",
	"parameters":            map[string]any{"type": "object"},
	"quality":               "high",
	"reasoning_effort":      "low",
	"response_format":       "b64_json",
	"role":                  "user",
	"schema":                map[string]any{"type": "object"},
	"service_tier":          "priority",
	"size":                  "512x512",
	"status":                "completed",
	"stop":                  "x",
	"temperature":           0.5,
	"tool_call_id":          "call_0",
	"tool_use_id":           "call_0",
	"top_p":                 0.5,
	"truncation":            "auto",
	"url":                   "https://files.test/1",
}

// surroundings returns the elements that the elements of an array of the given name need before and after them.
func surroundings(request, name string) (before, after []any) {
	texts := elementsAround[request+" "+name]
	return decodeAll(texts.before), decodeAll(texts.after)
}

type around struct{ before, after string }

var elementsAround = map[string]around{
	"chat content":          {`{"type":"text","text":"first"}`, ""},
	"messages content":      {`{"type":"text","text":"first"}`, ""},
	"responses content":     {`{"type":"input_text","text":"first"}`, ""},
	"responses output":      {`{"type":"input_text","text":"first"}`, ""},
	"chat messages":         {userMessage, ""},
	"chat tools":            {`{"type":"function","function":{"name":"first"}}`, ""},
	"messages messages":     {userMessage, ""},
	"messages tools":        {`{"name":"first","input_schema":{}}`, ""},
	"count_tokens messages": {userMessage, ""},
	"count_tokens tools":    {`{"name":"first","input_schema":{}}`, ""},
	"responses input": {
		userMessage + `,{"type":"function_call","call_id":"call_0","name":"f","arguments":"{}"}`,
		`{"role":"assistant","content":"Done."}`,
	},
	"responses tools": {`{"type":"function","name":"first","parameters":{}}`, ""},
}

func decodeAll(elements string) []any {
	var list []any
	if err := json.Unmarshal([]byte("["+elements+"]"), &list); err != nil {
		panic(err)
	}
	return list
}
