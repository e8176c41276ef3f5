package jsontest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsStrict(t *testing.T) {
	for doc, want := range map[string]bool{
		`{"a":[1,{"b":null,"c":"x"}],"d":{"b":1e400}}`: true,
		` "\ud83d\ude00\\ud800" `:                      true,
		`{"a":{"x":1},"b":{"x":1}}`:                    true,
		``:                                             false,
		`{} {}`:                                        false,
		`[01]`:                                         false,
		"\"\xff\"":                                     false,
		`"\ud83d"`:                                     false,
		`"\ude00"`:                                     false,
		`"\ud83d \ude00"`:                              false,
		`"\ud83d\ud83d\ude00"`:                         false,
		`{"a":1,"a":2}`:                                false,
		`[{"b":[{"a":1,"\u0061":2}]}]`:                 false,
	} {
		assert.Equal(t, want, IsStrict(doc), "%s", doc)
	}
}
