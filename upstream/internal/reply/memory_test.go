package reply

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// readReply reads a reply of n bytes with a reservation.
func readReply(ctx context.Context, v *memoryReservation, n int) error {
	_, err := io.Copy(io.Discard, v.reader(ctx, strings.NewReader(strings.Repeat("x", n))))
	return err
}

func TestReplyMemory_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reply = 1 << 20
		m := &Memory{Limit: 2 * reply}
		reserve := func() *memoryReservation { return &memoryReservation{memory: m, limit: reply} }
		var held []*memoryReservation
		for range 3 { // the third exceeds the limit
			held = append(held, reserve())
			require.NoError(t, readReply(t.Context(), held[len(held)-1], reply))
		}
		var done [2]error
		var wg sync.WaitGroup
		waiting := []*memoryReservation{reserve(), reserve()}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		wg.Go(func() { done[0] = readReply(t.Context(), waiting[0], reply) })
		wg.Go(func() { done[1] = readReply(ctx, waiting[1], reply) })
		synctest.Wait()
		assert.Less(t, waiting[0].reserved+waiting[1].reserved, int64(2*reserveStep), "they wait")
		require.NoError(t, readReply(t.Context(), reserve(), reserveStep), "a small reply does not")
		cancel(gone)
		synctest.Wait()
		assert.Equal(t, gone, done[1])
		waiting[1].release()
		held[2].release()
		wg.Wait()
		assert.NoError(t, done[0])
		for _, v := range append(held[:2], waiting[0]) {
			v.release()
		}
		assert.Zero(t, m.reserved)
		assert.Nil(t, m.overLimit)
	})
}

func TestReplyMemory_TooLarge(t *testing.T) {
	v := &memoryReservation{memory: &Memory{Limit: 1 << 30}, limit: 100_000}
	require.NoError(t, readReply(t.Context(), v, 60_000))
	assert.ErrorIs(t, readReply(t.Context(), v, 60_000), bounded.ErrTooLarge, "the limit is for both readers")
}

// Replies of random sizes are all read without a deadlock, and never hold more memory
// than the limit and the size of one reply.
func TestReplyMemory_NoDeadlock(t *testing.T) {
	const reply, limit = 1 << 20, 1 << 20
	m := &Memory{Limit: limit}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range 20 {
				v := &memoryReservation{memory: m, limit: reply}
				assert.NoError(t, readReply(t.Context(), v, rng.IntN(reply)))
				m.mu.Lock()
				assert.LessOrEqual(t, m.reserved, int64(limit+2*reply))
				m.mu.Unlock()
				v.release()
			}
		})
	}
	wg.Wait()
	assert.Zero(t, m.reserved)
}
