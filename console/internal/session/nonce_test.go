package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNonces(t *testing.T) {
	var n Nonces
	nonce := NewNonce()
	assert.True(t, n.Take(nonce))
	for range maxNonces {
		assert.True(t, n.Take(NewNonce()))
	}
	assert.False(t, n.Take(nonce))
	assert.False(t, n.Take(""))
}
