// Package largebody has what tests share that send large bodies of many small JSON
// values.
package largebody

import (
	"fmt"
	"runtime"
	"strings"
)

// Size is the maximum size in bytes of the bodies that Repeat returns.
const Size = 16 << 20

// Repeat returns a JSON document: head, then most elements or as many as Size has room
// for, separated by commas, and then tail. A %d in element is the element's number.
func Repeat(head, element, tail string, most int) string {
	numbered := strings.Contains(element, "%d")
	b := append(make([]byte, 0, Size), head...)
	for i := 0; i < most && len(b) < Size-len(element)-len(tail)-100; i++ {
		if numbered {
			b = fmt.Appendf(b, element, i)
		} else {
			b = append(b, element...)
		}
		b = append(b, ',')
	}
	return string(append(b[:len(b)-1], tail...))
}

// Allocated calls f and returns how many MB the process allocated meanwhile.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	// What f allocates depends on the buffers that earlier calls have left in pools. A
	// sync.Pool keeps its contents for one collection.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}
