package llm_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
)

// changeAll changes everything that v leads to: each number, string and boolean, and each byte of
// raw JSON. Then it empties the maps.
func changeAll(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "changed")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.Struct:
		for i := range v.NumField() {
			changeAll(t, v.Field(i))
		}
	case reflect.Slice:
		assert.NotZero(t, v.Len(), "the test fills each list: %s", v.Type())
		for i := range v.Len() {
			changeAll(t, v.Index(i))
		}
	case reflect.Pointer:
		changeAll(t, v.Elem())
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if !entries.Value().CanInt() { // a map has its own copy of a number
				changeAll(t, entries.Value())
			}
		}
		v.Clear()
	default:
		assert.Fail(t, "a type without a case", "%s", v.Type())
	}
}

func testClone[T any](t *testing.T, clone func(*T) *T) {
	newValue := func() *T {
		v := new(T)
		codectest.Fill(reflect.ValueOf(v).Elem(), rand.New(rand.NewPCG(5, 6)), 0)
		return v
	}
	original := newValue()
	c := clone(original)
	assert.Equal(t, original, c)
	changeAll(t, reflect.ValueOf(c).Elem())
	assert.Equal(t, newValue(), original, "the original does not change with the clone")
	assert.NotEqual(t, original, c)
	assert.Equal(t, new(T), clone(new(T)), "nil stays nil")
	assert.Nil(t, clone(nil))
}

// Nothing is shared, in whatever depth.
func TestClone(t *testing.T) {
	testClone(t, (*llm.ChatRequest).Clone)
	testClone(t, (*llm.ChatChunk).Clone)
}

func TestClone_KeepsEmpty(t *testing.T) {
	r := &llm.ChatRequest{
		Messages: []llm.Message{{Content: llm.Content{}}}, Stop: llm.StringList{},
		Tools: []llm.Tool{{Function: &llm.Function{Parameters: json.RawMessage{}}}}, Extra: llm.Extra{"x": nil},
	}
	assert.Equal(t, r, r.Clone())
}
