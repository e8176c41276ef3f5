package console

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNonces(t *testing.T) {
	var n nonces
	nonce := newNonce()
	assert.True(t, n.take(nonce))
	for range maxNonces {
		assert.True(t, n.take(newNonce()))
	}
	assert.False(t, n.take(nonce))
	assert.False(t, n.take(""))
}
