package codectest

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/require"
)

// A Codec is a type of the API that encodes and decodes itself.
type Codec[T any] interface {
	*T
	json.Marshaler
	json.Unmarshaler
}

// RoundTrip decodes and encodes a type that clients send. What is accepted must be
// strictly JSON.
func RoundTrip[T any, P Codec[T]](t testing.TB, data []byte) (v P, encoded []byte, ok bool) {
	t.Helper()
	v, encoded, ok = RoundTripReply[T, P](t, data)
	require.True(t, !ok || jsontest.IsStrict(data), "accepted, but not strictly JSON: %q", data)
	return v, encoded, ok
}

// RoundTripReply decodes and encodes a type that upstreams send, which is decoded
// leniently. It must be encoded as strict JSON, and decoding and encoding it once more
// must not change it.
func RoundTripReply[T any, P Codec[T]](t testing.TB, data []byte) (v P, encoded []byte, ok bool) {
	t.Helper()
	v = new(T)
	if v.UnmarshalJSON(data) != nil {
		return nil, nil, false
	}
	encoded, err := v.MarshalJSON()
	require.NoError(t, err, "%q", data)
	require.True(t, jsontest.IsStrict(encoded), "%q is encoded as %q", data, encoded)
	again := P(new(T))
	require.NoError(t, again.UnmarshalJSON(encoded), "%q is encoded as %q", data, encoded)
	twice, err := again.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(twice), "%q", data)
	return v, encoded, true
}

// KeepsMembers fails t if a member of in is missing in out, or has another value there.
func KeepsMembers(t testing.TB, in, out []byte) {
	t.Helper()
	var a, b any
	if json.Unmarshal(in, &a) == nil && json.Unmarshal(out, &b) == nil {
		keepsValue(t, a, b, "")
	}
}

func keepsValue(t testing.TB, a, b any, path string) {
	t.Helper()
	switch a := a.(type) {
	case map[string]any:
		object, ok := b.(map[string]any)
		require.True(t, ok || len(a) == 0, "%s has become %v", path, b)
		for name, v := range a {
			w, ok := object[name]
			require.True(t, ok || isEmpty(v), "%s.%s is lost", path, name)
			if ok {
				keepsValue(t, v, w, path+"."+name)
			}
		}
	case []any:
		list, ok := b.([]any)
		if !ok {
			return // a list of one string, or content of one text, becomes a string
		}
		require.Len(t, list, len(a), path)
		for i := range a {
			keepsValue(t, a[i], list[i], path+"[]")
		}
	case string:
		if s, ok := b.(string); ok && a != "" { // an empty type may stand for the default
			require.Equal(t, a, s, path)
		}
	case float64:
		if f, ok := b.(float64); ok {
			require.Equal(t, a, f, path)
		}
	}
}

// isEmpty reports whether a member with the value v may be left out.
func isEmpty(v any) bool {
	list, isList := v.([]any)
	return v == nil || (isList && len(list) == 0) || reflect.DeepEqual(v, "") || reflect.DeepEqual(v, false)
}

// SameValue fails t unless encoded decodes to v. Empty lists are as good as none. It changes v.
func SameValue[T any](t testing.TB, v *T, encoded []byte) {
	t.Helper()
	again := new(T)
	require.NoError(t, json.Unmarshal(encoded, again))
	normalize(reflect.ValueOf(v).Elem())
	normalize(reflect.ValueOf(again).Elem())
	require.Equal(t, again, v, "%q", encoded)
}

var rawType = reflect.TypeFor[json.RawMessage]()

// normalize replaces each raw JSON value in v by the form in which it is encoded, and each empty
// list by nil.
func normalize(v reflect.Value) {
	compact := func(raw json.RawMessage) json.RawMessage {
		b, err := llm.Tool{Extra: llm.Extra{"x": raw}}.MarshalJSON()
		if err != nil {
			return raw
		}
		return json.RawMessage(b[len(`{"type":"","x":`) : len(b)-1])
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			normalize(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			normalize(v.Field(i))
		}
	case reflect.Slice:
		if v.Type() == rawType {
			if !v.IsNil() {
				v.Set(reflect.ValueOf(compact(v.Bytes())))
			}
			return
		}
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			normalize(v.Index(i))
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[llm.Extra]() {
			for _, name := range v.MapKeys() {
				v.SetMapIndex(name, reflect.ValueOf(compact(v.MapIndex(name).Bytes())))
			}
		}
	}
}
