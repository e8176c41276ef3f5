package texttest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/require"
)

// Long is as long as a prompt that somebody may want to hide from the estimate.
var Long = strings.Repeat("words ", 1_100_000/6)

// EachLong calls f for each text that v can have, which is Long, at every depth, with v
// otherwise zero but for one element in each list. A new field of a type that has no case
// here fails the test.
func EachLong(t *testing.T, v reflect.Value, path string, f func(path string)) {
	set := func(value any) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		f(path)
		v.Set(old)
	}
	raw, _ := json.Marshal(Long)
	switch v.Interface().(type) {
	case json.RawMessage:
		set(json.RawMessage(`{"a":` + string(raw) + `}`))
		return
	case llm.Extra:
		for _, value := range []string{`%s`, `[%s]`, `{"a":{"b":%s}}`} {
			path := path + " " + value
			v.Set(reflect.ValueOf(llm.Extra{"a": fmt.Appendf(nil, value, raw)}))
			f(path)
		}
		v.Set(reflect.ValueOf(llm.Extra{Long: json.RawMessage("1")}))
		f(path + " name")
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.String:
		set(Long)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				EachLong(t, v.Field(i), path+"."+field.Name, f)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		EachLong(t, v.Index(0), path+"[0]", f)
		v.SetZero()
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		EachLong(t, v.Elem(), path, f)
		v.SetZero()
	case reflect.Map: // the fields of a form
		for _, field := range []map[string][]string{{"a": {Long}}, {Long: {"a"}}} {
			v.Set(reflect.ValueOf(field))
			f(path)
		}
		v.SetZero()
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.Interface:
	default:
		require.Fail(t, "a type without a case", "%s: %s", path, v.Type())
	}
}
