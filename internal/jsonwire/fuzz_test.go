package jsonwire

import (
	"testing"
)

// FuzzJSON compares with other implementations: what is accepted, what is
// read, and what is written again.
func FuzzJSON(f *testing.F) {
	for _, s := range valid {
		f.Add([]byte(s))
	}
	for _, s := range invalid {
		f.Add([]byte(s))
	}
	f.Add(nested("[", "1", "]", MaxDepth))
	f.Add(object(40, `"a":{"k1":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		compare(t, data)
		checkString(t, string(data))
	})
}
