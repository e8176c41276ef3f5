package llmhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Extra holds the JSON members of an object that have no field in its Go type.
// They are kept when the object is encoded again, so that new and
// vendor-specific members pass through without a release of this package.
// A member that has a field is never encoded from Extra.
type Extra map[string]json.RawMessage

// A wireObject is a pointer to a struct that is a JSON object. Struct tags
// describe its members; those without a field are in Extra.
//
// The exported types have the methods MarshalJSON and UnmarshalJSON for
// encoding/json. The codec must not call the methods of nested values: each call
// would scan its value again, and errors would lose their position. So the codec
// has hooks for all wireTypes, which work on fields instead.
type wireObject interface {
	// fields returns a pointer to the same struct as a type without methods,
	// whose tags describe the JSON object.
	fields() any
}

// wireTypes are the types that are wireObjects.
var wireTypes = []wireType{
	wire[ChatRequest](), wire[StreamOptions](), wire[ResponseFormat](),
	wire[Message](), wire[ReasoningDetail](), wire[Part](), wire[ImageURL](),
	wire[Tool](), wire[Function](), wire[ToolCall](), wire[FunctionCall](),
	wire[ChatChunk](), wire[ChunkChoice](), wire[Delta](), wire[ToolCallDelta](),
	wire[ChatResponse](), wire[Choice](), wire[replyMessage](),
	wire[Usage](), wire[PromptTokensDetails](), wire[CompletionTokensDetails](),
	wire[ImageRequest](), wire[Image](), wire[ImageResponse](), wire[imageUsage](),
	wire[EmbeddingRequest](), wire[EmbeddingResponse](), wire[embedding](), wire[embeddingUsage](),
	wire[Model](),
}

// A wireType has the hooks of a type.
type wireType struct {
	typ       reflect.Type
	marshal   *jsonv2.Marshalers
	unmarshal func(*decoder) *jsonv2.Unmarshalers
}

// A pointerTo is a *T that is a wireObject.
type pointerTo[T any] interface {
	*T
	wireObject
}

func wire[T any, P pointerTo[T]]() wireType {
	typ := reflect.TypeFor[T]()
	extra, ok := typ.FieldByName("Extra")
	return wireType{
		typ: typ,
		marshal: jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, v *T) error {
			if !ok {
				return encodeObject(enc, P(v), nil)
			}
			return encodeObject(enc, P(v), reflect.ValueOf(v).Elem().FieldByIndex(extra.Index).Interface().(Extra))
		}),
		unmarshal: func(d *decoder) *jsonv2.Unmarshalers {
			return jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *T) error { return d.object(dec, P(v)) })
		},
	}
}

// encodeOptions are those of every document.
var encodeOptions = jsonv2.JoinOptions(
	jsonv2.WithMarshalers(encodeHooks()),
	jsonv2.Deterministic(true),
	jsontext.AllowInvalidUTF8(true), // bytes that are not UTF-8 become U+FFFD
	jsontext.PreserveRawStrings(true),
)

func encodeHooks() *jsonv2.Marshalers {
	hooks := []*jsonv2.Marshalers{
		jsonv2.MarshalToFunc(encodeRaw),
		jsonv2.MarshalToFunc(encodeFinishReason),
		jsonv2.MarshalToFunc(encodeContent),
		jsonv2.MarshalToFunc(encodeStringList),
		jsonv2.MarshalToFunc(encodeEmbeddingInput),
		jsonv2.MarshalToFunc(encodeVector),
		jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, _ *chunkObject) error { return enc.WriteToken(tokenChunk) }),
		jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, _ *completionObject) error { return enc.WriteToken(tokenCompletion) }),
		jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, _ *modelObject) error { return enc.WriteToken(tokenModel) }),
	}
	for _, t := range wireTypes {
		hooks = append(hooks, t.marshal)
	}
	return jsonv2.JoinMarshalers(hooks...)
}

// appendJSON appends the JSON of v, which points to a type of the wire, without
// needless space.
func appendJSON(b []byte, v any) ([]byte, error) {
	w := bytes.NewBuffer(b)
	if err := jsonv2.MarshalWrite(w, v, encodeOptions); err != nil {
		return b, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return escapeLineBreaks(w.Bytes(), len(b)), nil
}

// marshal returns what appendJSON appends.
func marshal(v any) ([]byte, error) {
	checkListed(v)
	b, err := jsonv2.Marshal(v, encodeOptions)
	if err != nil {
		return nil, fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return escapeLineBreaks(b, 0), nil
}

// checkListed panics if v is a wireObject that is not in wireTypes: its methods
// MarshalJSON and UnmarshalJSON would call themselves for ever.
func checkListed(v any) {
	if _, ok := v.(wireObject); ok && !listedTypes[reflect.TypeOf(v).Elem()] {
		panic(fmt.Sprintf("llmhttp: %T is missing in wireTypes", v))
	}
}

// listedTypes is the set of wireTypes.
var listedTypes = func() map[reflect.Type]bool {
	listed := make(map[reflect.Type]bool)
	for _, t := range wireTypes {
		listed[t.typ] = true
	}
	return listed
}()

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	start := len(b)
	b, _ = jsontext.AppendQuote(b, s) // fails for bytes that are not UTF-8, but replaces them
	return escapeLineBreaks(b, start)
}

// lineBreaks are the characters that JSON need not escape and where some clients
// of streams nevertheless end a line, as Python's splitlines does.
var lineBreaks = []string{"\u0085", "\u2028", "\u2029"}

// escapeLineBreaks escapes lineBreaks in the JSON that begins at start.
func escapeLineBreaks(b []byte, start int) []byte {
	for _, c := range lineBreaks {
		if bytes.Contains(b[start:], []byte(c)) {
			escaped := fmt.Appendf(nil, `\u%04x`, []rune(c)[0])
			b = append(b[:start:start], bytes.ReplaceAll(b[start:], []byte(c), escaped)...)
		}
	}
	return b
}

// An encodedObject is a wireObject that is not encoded as it is decoded.
type encodedObject interface{ encoded() any }

func encodedFields(v wireObject) any {
	if e, ok := v.(encodedObject); ok {
		return e.encoded()
	}
	return v.fields()
}

// encodeObject encodes a wireObject without those members of its Extra that have
// a field.
func encodeObject(enc *jsontext.Encoder, v wireObject, extra Extra) error {
	fields := encodedFields(v)
	if len(extra) == 0 {
		return jsonv2.MarshalEncode(enc, fields)
	}
	known := membersOf(reflect.TypeOf(fields).Elem())
	others := extra
	for name := range extra {
		if !utf8.ValidString(name) { // two could become the same
			return errors.New("the name of a member is not UTF-8")
		}
		if known[name] {
			others = maps.Clone(extra)
			maps.DeleteFunc(others, func(name string, _ json.RawMessage) bool { return known[name] })
			break
		}
	}
	if len(others) < len(extra) {
		c := reflect.New(reflect.TypeOf(v).Elem())
		c.Elem().Set(reflect.ValueOf(v).Elem())
		c.Elem().FieldByName("Extra").Set(reflect.ValueOf(others))
		return encodeObject(enc, c.Interface().(wireObject), others)
	}
	return jsonv2.MarshalEncode(enc, fields)
}

var knownMembers sync.Map // map[reflect.Type]map[string]bool

// membersOf returns the names of the members that the tags of a struct describe.
func membersOf(t reflect.Type) map[string]bool {
	if m, ok := knownMembers.Load(t); ok {
		return m.(map[string]bool)
	}
	names := make(map[string]bool)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			names[name] = true
		case f.Anonymous:
			maps.Copy(names, membersOf(f.Type))
		case options == "embed" && f.Type.Kind() == reflect.Pointer:
			maps.Copy(names, membersOf(f.Type.Elem()))
		}
	}
	if names["object"] {
		names[objectError] = true // clients would take the object for an error
	}
	knownMembers.Store(t, names)
	return names
}

// encodeRaw encodes a value that is kept as it is. It fails if the value is not
// valid JSON.
func encodeRaw(enc *jsontext.Encoder, raw json.RawMessage) error {
	return jsonv2.MarshalEncode(enc, jsontext.Value(raw), jsontext.AllowInvalidUTF8(false))
}
