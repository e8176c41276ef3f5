package deepcopy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

type node struct {
	Name  string
	Next  *node
	List  []node
	Extra map[string]json.RawMessage
}

func TestOf(t *testing.T) {
	newNode := func() *node {
		return &node{
			Name: "a", Next: &node{Name: "b"}, List: []node{{Name: "c"}, {Next: &node{}}},
			Extra: map[string]json.RawMessage{"x": json.RawMessage(`1`)},
		}
	}
	original := newNode()
	n := deepcopy.Of(original)
	assert.Equal(t, original, n)
	n.Next.Name, n.List[0].Name, n.List[1].Next.Name = "", "", "d"
	n.Extra["x"][0] = '2'
	delete(n.Extra, "x")
	assert.Equal(t, newNode(), original, "the original does not change with the copy")
	assert.Equal(t, &node{}, deepcopy.Of(&node{}), "nil stays nil")
	empty := &node{List: []node{}, Extra: map[string]json.RawMessage{"x": {}, "y": nil}}
	assert.Equal(t, empty, deepcopy.Of(empty), "empty stays empty")
	assert.Nil(t, deepcopy.Of[node](nil))
}
