package wrapped

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

type (
	value  any
	name   string // is found
	stop   struct{ value }
	passes struct{ value }
	both   struct{ value } // is found, and stops
	loop   struct{}
)

func (n name) String() string                   { return string(n) }
func (stop) GoString() string                   { return "" }
func (both) String() string                     { return "both" }
func (both) GoString() string                   { return "" }
func (w stop) Unwrap(context.Context) value     { return w.value }
func (w passes) Unwrap(context.Context) value   { return w.value }
func (w both) Unwrap(context.Context) value     { return w.value }
func (l loop) Unwrap(ctx context.Context) value { return l }
func find(t *testing.T, v value) (fmt.Stringer, bool) {
	return Find[fmt.Stringer](v, Next[value](t.Context()))
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		v            value
		want, before string // empty if nothing is found
	}{
		{name("a"), "a", "a"},
		{passes{passes{name("a")}}, "a", "a"},
		{passes{both{name("a")}}, "both", "both"},
		{passes{stop{name("a")}}, "a", ""},
		{both{stop{name("a")}}, "both", "both"},
		{passes{nil}, "", ""},
		{nil, "", ""},
		{loop{}, "", ""},
	} {
		check := func(want string, found fmt.Stringer, ok bool) {
			assert.Equal(t, want != "", ok, "%#v", test.v)
			if ok {
				assert.Equal(t, want, found.String())
			}
		}
		found, ok := find(t, test.v)
		check(test.want, found, ok)
		found, ok = FindBefore[fmt.Stringer, fmt.GoStringer](test.v, Next[value](t.Context()))
		check(test.before, found, ok)
	}
}
