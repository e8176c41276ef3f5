package llmhttp

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// A request fills a size class of Go's allocator. The next one has 3,456 bytes, which each idle
// stream would hold (budget: idle stream).
func TestRequest_Size(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) == 8 {
		assert.LessOrEqual(t, unsafe.Sizeof(request{}), uintptr(3200))
	}
}
