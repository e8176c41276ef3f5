package claims

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func TestSet(t *testing.T) {
	var s Set
	claim := func(at time.Duration, want bool, wait time.Duration) {
		t.Helper()
		claimed, waits := s.Claim("a", now.Add(at), time.Minute, now.Add(time.Hour))
		assert.Equal(t, want, claimed)
		assert.Equal(t, wait, waits)
	}
	s.End("a", true) // nothing
	claim(0, true, 0)
	claim(20*time.Second, false, 40*time.Second)
	claim(time.Minute, true, 0)
	s.End("a", false)
	claim(time.Minute, true, 0)
	s.End("a", true)
	claim(time.Minute, false, 0)
	claim(time.Hour, false, 0)
	s.End("a", false)
	claim(time.Hour, false, 0)
	claimed, _ := s.Claim("b", now, time.Minute, time.Time{})
	assert.True(t, claimed)
}

func TestSet_Forgets(t *testing.T) {
	const n = maxTasks + 1
	for name, tt := range map[string]struct {
		keep      func(i int) time.Time
		kept      func(i int) bool // always kept
		forgotten func(i int) bool
	}{
		"old ones first": {
			func(i int) time.Time { return now.Add(time.Duration(i-n/2) * time.Second) },
			func(i int) bool { return i >= n/2 }, func(i int) bool { return i < n/2 },
		},
		"then the shortest": {
			func(i int) time.Time { return now.Add(time.Duration(1+i*7919%n) * time.Second) },
			func(i int) bool { return i*7919%n > n/4 }, func(i int) bool { return i*7919%n < n/4-1 },
		},
		"those that are kept for ever last": {
			func(i int) time.Time {
				if i%4 == 0 {
					return now.Add(time.Hour)
				}
				return time.Time{}
			},
			func(int) bool { return false }, func(i int) bool { return i%4 == 0 },
		},
		"all for ever": {
			func(int) time.Time { return time.Time{} },
			func(int) bool { return false }, func(int) bool { return false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			for i := range n {
				s.Claim(fmt.Sprint(i), now, time.Minute, tt.keep(i))
			}
			assert.LessOrEqual(t, len(s.tasks), maxTasks/4*3+1)
			for i := range n {
				_, ok := s.tasks[fmt.Sprint(i)]
				if tt.kept(i) && !ok || tt.forgotten(i) && ok {
					assert.Fail(t, "kept?", "%d: %v", i, ok)
					return
				}
			}
		})
	}
}
