package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// A report with a Limit finds the largest groups in short and in long periods.
func TestReportUsage_Limit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var records []llmhttp.UsageRecord
	for i := range 1000 {
		key := rng.IntN(50)
		at := noon.Truncate(day).Add(time.Duration(rng.Int64N(int64(100 * day))))
		r := usageRecord(fmt.Sprint(i), fmt.Sprint("account ", key%10), fmt.Sprint("m", rng.IntN(2)), at, rng.IntN(1_000_000))
		r.KeyID = fmt.Sprint("key ", key)
		records = append(records, r)
	}
	var want memory.UsageStore
	mustRecord(t, &want, records...)
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		mustRecord(t, s, records...)
		for _, by := range []manage.ReportGroup{manage.ByDay, manage.ByKey, manage.ByAccount} {
			for _, account := range []string{"", "account 1"} {
				for _, period := range []time.Duration{30 * day, longPeriod + day} {
					from := noon.Truncate(day).Add(10 * day)
					q := manage.ReportQuery{Account: account, From: from, To: from.Add(period), By: by, Limit: 3}
					expected, err := want.Report(t.Context(), q)
					require.NoError(t, err)
					require.NotEmpty(t, expected)
					got, err := s.Report(t.Context(), q)
					require.NoError(t, err)
					assert.Equal(t, expected, got, "%+v", q)
				}
			}
		}
	})
}
