// Package randomid makes IDs.
package randomid

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// New returns prefix and 128 random bits in hexadecimal.
func New(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var id [48]byte
	return string(hex.AppendEncode(append(id[:0], prefix...), raw[:]))
}
