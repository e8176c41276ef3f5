package texttest

import (
	"reflect"
	"testing"

	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/require"
)

// Walk walks a delta or a message.
func Walk(v any, text func(texts.Kind, *string), extra func(texts.Kind, llm.Extra)) {
	switch v := v.(type) {
	case *llm.Delta:
		texts.WalkDelta(v, text, extra)
	case *llm.Message:
		texts.WalkMessage(v, text, extra)
	}
}

// KindAt returns the kind with which the walks over texts visit the string at path of a Delta or a
// Message.
func KindAt(t *testing.T, w any, path string) texts.Kind {
	t.Helper()
	var kinds []texts.Kind
	Each(reflect.ValueOf(w).Elem(), "", func(at string, s reflect.Value) {
		if at == path {
			Walk(w, func(kind texts.Kind, visited *string) {
				if reflect.ValueOf(visited).Pointer() == s.Addr().Pointer() {
					kinds = append(kinds, kind)
				}
			}, texts.IgnoreExtra)
		}
	})
	require.Len(t, kinds, 1, "walk visits %s once", path)
	return kinds[0]
}

// IsInPieces reports whether texts of a kind come in pieces.
func IsInPieces(k texts.Kind) bool { return k <= texts.KindReasoning }
