// When keys were last used.

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
func (s *keyStore) storeLastUsed(ctx context.Context) {
	used := s.cache.takeLastUsed()
	uses := make([]keyUse, 0, len(used))
	for _, id := range slices.Sorted(maps.Keys(used)) {
		uses = append(uses, keyUse{id, micros(used[id])})
	}
	for batch := range slices.Chunk(uses, maxBatch) {
		err := s.db.retry(ctx, s.db.isConflict, func() error { return s.db.setLastUsed(ctx, s.db.write, batch) })
		if err != nil {
			s.cache.restoreLastUsed(used)
			if !errors.Is(err, context.Canceled) { // Close interrupts this call and makes another
				s.opts.logger().Error("last use of keys not stored", "keys", len(uses), "error", err)
			}
			return
		}
	}
}
