package sqlstore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
)

// A Store works behind a PgBouncer that assigns connections to transactions: it
// loses prepared statements and refuses some settings of a session.
func TestOpen_PgBouncer(t *testing.T) {
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	bouncer := servertest.PgBouncer(t, postgres)
	s := openStore(t, bouncer.DSN(), &Options{KeyTTL: -1})
	info, secret := createKey(t, s, KeyParams{Account: "acme"})
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 20 {
				_, err := s.Lookup(t.Context(), secret)
				assert.NoError(t, err)
				assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint(worker, "-", i), "acme", "m", noon, 1)))
				_, err = s.QueryKey(t.Context(), info.ID, allTime("acme"))
				assert.NoError(t, err)
				_, err = s.UpdateKey(t.Context(), info.ID, func(p *KeyParams) error { p.Name = fmt.Sprint(worker, i); return nil })
				assert.NoError(t, err)
			}
		})
	}
	running.Wait()
	assert.EqualValues(t, 160, countRequests(mustQuery(t, s, allTime("acme"))))
	require.NoError(t, s.RevokeKey(t.Context(), info.ID))

	_, err := Open(t.Context(), bouncer.DSN()+"&search_path=other", nil)
	assert.ErrorContains(t, err, "unsupported startup parameter: search_path")
}
