package llmhttp

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wireTypes contains each type that a request or a reply has within it: the codec
// would call the methods of others.
func TestWireTypesAreComplete(t *testing.T) {
	listed := make(map[reflect.Type]bool)
	for _, w := range wireTypes {
		listed[w.typ] = true
	}
	wireObjects := reflect.TypeFor[wireObject]()
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if reflect.PointerTo(typ).Implements(wireObjects) {
			assert.True(t, listed[typ], "%v", typ)
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		}
	}
	for _, w := range wireTypes {
		walk(w.typ)
	}
	assert.Greater(t, len(seen), len(wireTypes))
}

// appendString writes what the codec writes for a string.
func TestAppendString(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"a", "é", "\u0085", "\u2028", "\u2029", "“", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", `"`, `\\`, "/", "<", "&", "\xff", "\xed\xa0\x80", "\U0001f600"}
	for range 1000 {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		s := b.String()
		want, err := marshal(&s)
		require.NoError(t, err)
		assert.Equal(t, "x"+string(want), string(appendString([]byte("x"), s)))
		assert.NotContains(t, string(want), "\u0085")
	}
}

// A document that nests too deep, or has too many members, is refused where the
// limit is, before memory is spent on it.
func TestBounds(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for n := range 20 {
		for limit := range 20 {
			assert.Equal(t, n > limit, isDeeper(nested(n), limit), "%d, %d", n, limit)
		}
	}
	assert.False(t, isDeeper([]byte(`{"a":"[[[[\\\"[[[["}`), 1))
	assert.True(t, isDeeper([]byte(`{"a":"[[[[\\\"[[[[","b":[]}`), 1))
	assert.NoError(t, checkBounds(nested(maxDepth), true))
	assert.Error(t, checkBounds(nested(maxDepth+1), true))
	assert.NoError(t, checkBounds(nested(maxDepth+1), false), "the decoder checks the depth")
}
