package memory

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/responsestore"
)

func TestResponseStore_Conformance(t *testing.T) {
	storetest.TestResponseStore(t, func(testing.TB) responsestore.Store { return NewResponseStore() })
}

// storedResponse returns a response with one item of about 1000 bytes.
func storedResponse(i int, expires time.Time) *responsestore.Response {
	return &responsestore.Response{
		ID: fmt.Sprint("resp_", i), Account: "acme", Expires: expires, Body: []byte("{}"),
		Output: []responsestore.Item{{ID: fmt.Sprint("msg_", i), Body: []byte(`"` + strings.Repeat("x", 1000) + `"`)}},
	}
}

func TestResponseStore_DropsTheOldest(t *testing.T) {
	s := NewResponseStore()
	s.MaxBytes = 10_000
	for i := range 100 {
		require.NoError(t, s.SaveResponse(t.Context(), storedResponse(i, time.Time{})))
		assert.LessOrEqual(t, s.size, s.MaxBytes)
	}
	assert.Len(t, s.byID, 5)
	assert.Len(t, s.items, 5)
	_, err := s.LoadResponse(t.Context(), "acme", "resp_99")
	assert.NoError(t, err)
	_, err = s.LoadResponse(t.Context(), "acme", "resp_94")
	assert.ErrorIs(t, err, responsestore.ErrNotFound)
	large := storedResponse(100, time.Time{})
	large.Body = make([]byte, s.MaxBytes)
	assert.ErrorContains(t, s.SaveResponse(t.Context(), large), "exceeds the limit of 10000 bytes")
	assert.Len(t, s.byID, 5)
}

func TestResponseStore_MaxBytes(t *testing.T) {
	for name, test := range map[string]struct {
		maxBytes int64
		kept     int
	}{
		"zero":     {0, 127},
		"negative": {-1, 130},
		"set":      {10 << 20, 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewResponseStore()
			s.MaxBytes = test.maxBytes
			body := make([]byte, 1<<20)
			for i := range 130 {
				r := storedResponse(i, time.Time{})
				r.Body = body
				require.NoError(t, s.SaveResponse(t.Context(), r))
			}
			assert.Len(t, s.byID, test.kept)
		})
	}
}

// An account that stores much drops its own responses, and none of others.
func TestResponseStore_DropsThoseOfTheLargestAccount(t *testing.T) {
	s := NewResponseStore()
	s.MaxBytes = 20_000
	of := func(account string, i int) *responsestore.Response {
		r := storedResponse(i, time.Time{})
		r.Account = account
		return r
	}
	for i := range 3 {
		require.NoError(t, s.SaveResponse(t.Context(), of("small", i)))
	}
	for i := range 100 {
		require.NoError(t, s.SaveResponse(t.Context(), of("large", i)))
		assert.LessOrEqual(t, s.size, s.MaxBytes)
	}
	for i := range 3 {
		_, err := s.LoadResponse(t.Context(), "small", fmt.Sprint("resp_", i))
		assert.NoError(t, err)
	}
	for i := range 100 {
		require.NoError(t, s.SaveResponse(t.Context(), of("another", i)))
	}
	for i := range 3 {
		_, err := s.LoadResponse(t.Context(), "small", fmt.Sprint("resp_", i))
		assert.NoError(t, err)
	}
	assert.Equal(t, s.accounts["large"].size, s.accounts["another"].size, "the rest is shared")

	huge := of("huge", 0)
	huge.Body = make([]byte, 15_000)
	assert.ErrorContains(t, s.SaveResponse(t.Context(), huge), "exceeds what its account may use")
	assert.NotContains(t, s.accounts, "huge")
	_, err := s.LoadResponse(t.Context(), "small", "resp_0")
	assert.NoError(t, err)
}

func TestResponseStore_DropsExpiredResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewResponseStore()
		for i := range 3 {
			require.NoError(t, s.SaveResponse(t.Context(), storedResponse(i, time.Now().Add(time.Hour))))
		}
		time.Sleep(time.Hour - 1)
		_, err := s.LoadResponse(t.Context(), "acme", "resp_0")
		assert.NoError(t, err)
		time.Sleep(time.Nanosecond)
		_, err = s.LoadResponse(t.Context(), "acme", "resp_0")
		assert.ErrorIs(t, err, responsestore.ErrNotFound)
		require.NoError(t, s.SaveResponse(t.Context(), storedResponse(3, time.Time{})))
		assert.Len(t, s.byID, 1)
		assert.Len(t, s.items, 1)
		for i := range 4 {
			if err := s.DeleteResponse(t.Context(), "acme", fmt.Sprint("resp_", i)); i < 3 {
				assert.ErrorIs(t, err, responsestore.ErrNotFound)
			} else {
				assert.NoError(t, err)
			}
		}
		assert.Zero(t, s.size)
		assert.Empty(t, s.items)
	})
}
