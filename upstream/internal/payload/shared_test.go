package payload

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sharedText(t testing.TB, text string) *Shared {
	s, err := NewShared(func(b []byte) ([]byte, error) { return append(b, text...), nil })
	require.NoError(t, err)
	return s
}

// The memory of a body is not used again before all readers are closed, and not read after that.
func TestShared(t *testing.T) {
	text := strings.Repeat("a", minShared)
	body := sharedText(t, text)
	p := body.Payload()
	assert.EqualValues(t, minShared, p.Size)
	first, err := p.Open()
	require.NoError(t, err)
	second, err := p.Open()
	require.NoError(t, err)
	require.NoError(t, iotest.TestReader(first, []byte(text)))
	body.Release()
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	sharedText(t, strings.Repeat("b", minShared))
	got, err := io.ReadAll(second)
	require.NoError(t, err)
	require.Equal(t, text, string(got))

	require.NoError(t, second.Close())
	_, err = second.Read(make([]byte, 1))
	assert.ErrorIs(t, err, errBodyReleased)
	_, err = p.Open()
	assert.ErrorIs(t, err, errBodyReleased)
}

func TestShared_SmallOnesAreCopied(t *testing.T) {
	body := sharedText(t, "small")
	p := body.Payload()
	body.Release()
	sharedText(t, "other")
	r, err := p.Open()
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "small", string(got))
}

func TestShared_EncodingFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := NewShared(func([]byte) ([]byte, error) { return nil, broken })
	assert.Equal(t, broken, err)
}
