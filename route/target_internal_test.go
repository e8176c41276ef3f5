package route

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// Each operation that needs an optional interface has a case in supports.
func TestTarget_SupportsKnowsEveryOperation(t *testing.T) {
	chats := &target{backend: llmhttp.BackendFunc(nil)}
	all := &target{backend: llmhttp.Forwarder{}}
	for _, op := range llmhttp.Operations() {
		assert.Equal(t, op == llmhttp.OperationChat, chats.supports(op), "%s", op)
		assert.True(t, all.supports(op), "%s", op)
	}
}
