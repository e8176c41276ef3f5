// Package codectest has the tests that each type of the API must pass that encodes and decodes
// itself as JSON. The packages that define such types run them.
package codectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/membertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Suite has the types of a package, and documents of them.
type Suite struct {
	// Types has, by the name of each type, a function that returns a pointer to a new value.
	Types map[string]func() any

	// Documents are documents that encoding reproduces byte for byte.
	Documents []Document

	// NotObjects are the names of structs that are no objects in JSON.
	NotObjects []string

	// Always has, by the name of a type, a member that a zero value has although its tag has options.
	Always map[string]string
}

// A Document is JSON of one of the Types of a Suite.
type Document = struct{ Type, JSON string }

// Test runs the tests of the suite, each as a subtest. Types in except need not be among the Types.
func (s *Suite) Test(t *testing.T, except ...string) {
	t.Run("TypesAreComplete", func(t *testing.T) { s.typesAreComplete(t, except) })
	t.Run("TagsAgreeWithTables", s.tagsAgreeWithTables)
	t.Run("RoundTrip", s.roundTrip)
	t.Run("OrderAndSpaceDoNotMatter", s.orderAndSpaceDoNotMatter)
	t.Run("WithinOtherValues", s.withinOtherValues)
	t.Run("InvalidJSONChangesNothing", s.invalidJSONChangesNothing)
	t.Run("EveryFieldIsEncoded", s.everyFieldIsEncoded)
}

// typesAreComplete tests that every type that decodes itself is one of the Types. It reads the
// files of the package in the working directory. Types in except need not be there.
func (s *Suite) typesAreComplete(t *testing.T, except []string) {
	tested := make(map[string]bool)
	for _, newValue := range s.Types {
		tested[reflect.TypeOf(newValue()).Elem().Name()] = true
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	method := regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) UnmarshalJSON\(`)
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range method.FindAllSubmatch(source, -1) {
			found++
			typ := string(match[1])
			assert.True(t, tested[typ] || slices.Contains(except, typ), "Types lacks %s", typ)
		}
	}
	assert.NotZero(t, found)
}

// tagsAgreeWithTables tests that the struct tags, which only document the types, agree with the tables that encode and
// decode: each tag has the name of its member, and options if a zero value is left out.
func (s *Suite) tagsAgreeWithTables(t *testing.T) {
	constants := []string{"object", "logprobs", "meta"} // have no field
	for name, newValue := range s.Types {
		typ := reflect.TypeOf(newValue()).Elem()
		if typ.Kind() != reflect.Struct || slices.Contains(s.NotObjects, name) {
			continue
		}
		always := make(map[string]bool)
		for i := range typ.NumField() {
			field := typ.Field(i)
			member, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || member == "-" {
				continue
			}
			require.NotEmpty(t, member, "%s.%s", name, field.Name)
			always[member] = options == ""
			v := newValue()
			Fill(reflect.ValueOf(v).Elem().Field(i), rand.New(rand.NewPCG(1, 2)), 0)
			if typ := reflect.ValueOf(v).Elem().FieldByName("Type"); typ.IsValid() && typ.String() == "" {
				typ.SetString(member) // which has the member, as image_url and allowed_tools do
			}
			assert.Contains(t, encodedMembers(t, v), member, "%s.%s", name, field.Name)
		}
		if member := s.Always[name]; member != "" {
			always[member] = true
		}
		for member := range encodedMembers(t, newValue()) {
			assert.True(t, always[member] || slices.Contains(constants, member), "%s has %q", name, member)
			delete(always, member)
		}
		for member, left := range always {
			assert.False(t, left, "%s lacks %q", name, member)
		}
	}
}

func encodedMembers(t *testing.T, v any) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(encode(t, v)), &members))
	return members
}

// eachDocument calls test with each document and the value it is decoded to.
func (s *Suite) eachDocument(t *testing.T, test func(t *testing.T, newValue func() any, doc string)) {
	for _, d := range s.Documents {
		t.Run(fmt.Sprintf("%s/%.40s", d.Type, d.JSON), func(t *testing.T) { test(t, s.Types[d.Type], d.JSON) })
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// roundTrip tests that decoding and encoding reproduces a document: declared members are in the order of the
// format, and unknown ones follow, sorted by name.
func (s *Suite) roundTrip(t *testing.T) {
	s.eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		v := newValue()
		require.NoError(t, json.Unmarshal([]byte(doc), v))
		assert.Equal(t, doc, encode(t, v))
	})
}

// orderAndSpaceDoNotMatter tests that members may be in any order, with any white space between them.
func (s *Suite) orderAndSpaceDoNotMatter(t *testing.T) {
	s.eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(doc), &members) != nil || members == nil {
			t.Skip("not an object")
		}
		names := slices.Sorted(maps.Keys(members))
		for range 2 {
			slices.Reverse(names)
			var list []string
			for _, name := range names {
				list = append(list, fmt.Sprintf("%q :\t%s\r\n", name, members[name]))
			}
			v := newValue()
			require.NoError(t, json.Unmarshal([]byte("\n{"+strings.Join(list, " ,")+"} "), v))
			assert.Equal(t, doc, encode(t, v))
		}
	})
}

// withinOtherValues tests that the types work with encoding/json as values, pointers, elements and members.
func (s *Suite) withinOtherValues(t *testing.T) {
	s.eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		pointer := newValue()
		assert.Equal(t, "null", encode(t, reflect.Zero(reflect.TypeOf(pointer)).Interface()))
		require.NoError(t, json.Unmarshal([]byte(doc), pointer))
		value := reflect.ValueOf(pointer).Elem()
		assert.Equal(t, fmt.Sprintf(`{"p":%s,"s":[%[1]s,%[1]s],"v":%[1]s}`, doc),
			encode(t, map[string]any{"v": value.Interface(), "p": pointer, "s": []any{value.Interface(), pointer}}))

		list := reflect.MakeSlice(reflect.SliceOf(value.Type()), 2, 2)
		list.Index(1).Set(value)
		assert.True(t, strings.HasSuffix(encode(t, list.Interface()), ","+doc+"]"))

		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(value.Interface()))
		assert.Equal(t, doc+"\n", b.String())
	})
}

// invalidJSONChangesNothing tests that invalid JSON leaves a value unchanged. So does null, except that it sets lists to nil.
func (s *Suite) invalidJSONChangesNothing(t *testing.T) {
	s.eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		v := newValue()
		require.NoError(t, json.Unmarshal([]byte(doc), v))
		require.Error(t, json.Unmarshal([]byte(`{"a":`), v))
		if reflect.TypeOf(v).Elem().Kind() != reflect.Slice {
			require.Error(t, v.(json.Unmarshaler).UnmarshalJSON([]byte(`{"model":`)))
			require.NoError(t, json.Unmarshal([]byte("null"), v))
		}
		assert.Equal(t, doc, encode(t, v))
	})
}

// Fill sets v, and everything that it refers to, to random values other than zero.
func Fill(v reflect.Value, r *rand.Rand, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				Fill(v.Field(i), r, depth)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem(), r, depth)
	case reflect.Slice:
		if v.Type() == rawType {
			v.SetBytes([]byte(fmt.Sprint(r.IntN(1000))))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			Fill(v.Index(i), r, depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		Fill(value, r, depth)
		key := reflect.ValueOf(fmt.Sprintf("x_%d", r.IntN(1000)))
		if v.Type().Key() == reflect.TypeFor[time.Duration]() {
			key = reflect.ValueOf(time.Duration(1+r.IntN(1000)) * time.Second)
		}
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("s", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(1000))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(1 + r.IntN(1000)))
	}
}

// everyFieldIsEncoded tests that every field of each type survives encoding and decoding.
func (s *Suite) everyFieldIsEncoded(t *testing.T) {
	for name, newValue := range s.Types {
		t.Run(name, func(t *testing.T) {
			v := newValue()
			Fill(reflect.ValueOf(v).Elem(), rand.New(rand.NewPCG(3, 4)), 0)
			makeConsistent(reflect.ValueOf(v).Elem())
			b, err := json.Marshal(v)
			require.NoError(t, err)
			again := newValue()
			require.NoError(t, json.Unmarshal(b, again), "%s", b)
			assert.Equal(t, v, again, "%s", b)
		})
	}
}

// OtherCase tests that every member of every type that is decoded strictly is refused in another
// case, and returns how many names were refused. In the types of replies, which are decoded
// leniently, it is an unknown member.
func (s *Suite) OtherCase(t *testing.T) (refused int) {
	for name, newValue := range s.Types {
		typ := reflect.TypeOf(newValue()).Elem()
		if typ.Kind() != reflect.Struct {
			continue
		}
		isStrict := json.Unmarshal([]byte(`{"x":1,"x":2}`), newValue()) != nil
		for i := range typ.NumField() {
			member, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !typ.Field(i).IsExported() || member == "-" || member == "" {
				continue
			}
			for _, variant := range membertest.Variants(member) {
				err := json.Unmarshal([]byte(`{`+variant+`:null}`), newValue())
				if !isStrict {
					assert.NoError(t, err, "%s %s", name, variant)
					continue
				}
				refused++
				assert.ErrorContains(t, err, "Did you mean '"+member+"'?", "%s %s", name, variant)
			}
		}
	}
	return refused
}

// consistency has the functions of MakesConsistent.
var consistency = make(map[reflect.Type]func(v any))

// MakesConsistent registers a function that removes combinations of fields that no document of a
// T has. It stands beside the tests of T.
func MakesConsistent[T any](f func(v *T)) struct{} {
	consistency[reflect.TypeFor[T]()] = func(v any) { f(v.(*T)) }
	return struct{}{}
}

// makeConsistent calls the functions of MakesConsistent for v and all that it refers to.
func makeConsistent(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeConsistent(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				makeConsistent(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			makeConsistent(v.Index(i))
		}
	}
	if f := consistency[v.Type()]; f != nil {
		f(v.Addr().Interface())
	}
}
