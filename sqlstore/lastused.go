package sqlstore

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// A keyUse is the time of a key's last use.
type keyUse struct {
	id string
	at int64
}

// storeLastUsed stores when keys were last used. It logs an error, after which
// the next call tries again.
func (s *Store) storeLastUsed(ctx context.Context) {
	used := s.keys.takeLastUsed()
	uses := make([]keyUse, 0, len(used))
	for _, id := range slices.Sorted(maps.Keys(used)) {
		uses = append(uses, keyUse{id, micros(used[id])})
	}
	for batch := range slices.Chunk(uses, maxBatch) {
		err := s.retry(ctx, s.isConflict, func() error { return s.setLastUsed(ctx, s.write, batch) })
		if err != nil {
			s.keys.returnLastUsed(used)
			if !errors.Is(err, context.Canceled) { // Close interrupts this call and makes another
				s.logger().Error("last use of keys not stored", "keys", len(uses), "error", err)
			}
			return
		}
	}
}
