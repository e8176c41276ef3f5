package sqlstore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// Package storetest tests what every UsageStore must do.

// TestStore_RecordInAnyOrder records the same records several times, in random
// batches and concurrently through two Stores. The sums must count each record
// once.
func TestStore_RecordInAnyOrder(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		for round := range 4 {
			records := randomRecords(rng, round)
			var want memory.UsageStore
			mustRecord(t, &want, records...)
			var running sync.WaitGroup
			for w := range 4 {
				rng := rand.New(rand.NewPCG(seed, uint64(round*4+w+1)))
				running.Go(func() {
					for _, batch := range randomBatches(rng, records) {
						assert.NoError(t, stores[w%2].Record(t.Context(), batch...))
					}
				})
			}
			running.Wait()
			for i := range 3 {
				for _, q := range []llmhttp.UsageQuery{
					{From: noon.Truncate(day), To: noon.Truncate(day).Add(10 * day), Step: day},
					{From: noon, To: noon.Add(3 * day), Step: day},
					{From: noon, To: noon.Add(3 * day)},
					{From: noon, To: noon.Add(4 * day), Step: 36*time.Hour + time.Nanosecond},
				} {
					q.Account = fmt.Sprint("account", round, "-", i)
					assert.Equal(t, mustQuery(t, &want, q), mustQuery(t, stores[i%2], q))
				}
			}
		}
	})
}

func randomRecords(rng *rand.Rand, round int) []llmhttp.UsageRecord {
	records := make([]llmhttp.UsageRecord, 1+rng.IntN(200))
	for i := range records {
		at := noon.Add(time.Duration(rng.Int64N(int64(4 * day)))).Truncate(time.Microsecond)
		if rng.IntN(3) == 0 {
			at = at.Truncate(day)
		}
		account, model := fmt.Sprint("account", round, "-", rng.IntN(3)), fmt.Sprint("m", rng.IntN(3))
		records[i] = usageRecord(fmt.Sprint(round, "-", i), account, model, at, rng.IntN(1000))
	}
	return records
}

// randomBatches divides a permutation of records into batches and adds up to 9
// further copies of records to each.
func randomBatches(rng *rand.Rand, records []llmhttp.UsageRecord) (batches [][]llmhttp.UsageRecord) {
	shuffle := func(list []llmhttp.UsageRecord) {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	rest := slices.Clone(records)
	shuffle(rest)
	for len(rest) > 0 {
		n := 1 + rng.IntN(len(rest))
		batch := slices.Clone(rest[:n])
		for range rng.IntN(10) {
			batch = append(batch, records[rng.IntN(len(records))])
		}
		shuffle(batch)
		batches, rest = append(batches, batch), rest[n:]
	}
	return batches
}

func TestStore_QueryReadsSumsOfDays(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var want memory.UsageStore
		for i := range 500 {
			r := usageRecord(fmt.Sprint(i), "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*7*time.Hour), i)
			mustRecord(t, s, r)
			mustRecord(t, &want, r)
		}
		assert.Less(t, queryInt(t, s, "SELECT count(*) FROM llmhttp_usage_sums WHERE kind = 'account'"), int64(3*150))

		// Without the records, only the sums can answer the queries.
		_, err := s.db.write.Exec("DELETE FROM llmhttp_usage_records")
		require.NoError(t, err)
		midnight := noon.Truncate(day)
		for _, q := range []llmhttp.UsageQuery{
			{From: midnight, To: midnight.Add(100 * day), Step: day},
			{From: midnight.In(time.FixedZone("east", 3600)), To: midnight.Add(100 * day), Step: 7 * day},
			{From: midnight, To: midnight.Add(200 * day)},
			{From: time.Time{}, To: midnight.Add(10 * day), Step: -1},
		} {
			q.Account = "acme"
			assert.Equal(t, mustQuery(t, &want, q), mustQuery(t, s, q))
		}
		sums := mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(time.Hour), To: midnight.Add(50*day + time.Hour)})
		wholeDays := mustQuery(t, &want, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(day), To: midnight.Add(50 * day)})
		assert.Equal(t, countRequests(wholeDays), countRequests(sums), "the sums answer for the whole days of a period")
	})
}

func TestStore_SumsSaturate(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for name, test := range map[string]struct {
			numbers []int
			want    int64
		}{
			"maximum":         {[]int{math.MaxInt}, math.MaxInt64},
			"above maximum":   {[]int{math.MaxInt, math.MaxInt, 1}, math.MaxInt64},
			"minimum":         {[]int{math.MinInt}, math.MinInt64},
			"below minimum":   {[]int{math.MinInt, -1, math.MinInt}, math.MinInt64},
			"both signs":      {[]int{math.MaxInt - 5, math.MinInt + 5}, -1},
			"negative":        {[]int{-1, asInt(-1 << 40), 1}, -1 << 40},
			"above 32 bits":   {[]int{math.MaxInt32, math.MaxInt32, asInt(1 << 33)}, 2*math.MaxInt32 + 1<<33},
			"exceeds float64": {[]int{asInt(1<<53 + 1), asInt(1<<53 + 1), 1}, 1<<54 + 3},
		} {
			for _, oneBatch := range []bool{true, false} {
				account := fmt.Sprint(name, oneBatch)
				var records []llmhttp.UsageRecord
				for i, n := range test.numbers {
					r := usageRecord(fmt.Sprint(account, i), account, "m", noon, n)
					r.Units.CompletionTokens, r.Units.Images = int64(n), int64(n)
					records = append(records, r)
				}
				if oneBatch {
					mustRecord(t, s, records...)
				} else {
					for _, r := range records {
						mustRecord(t, s, r)
					}
				}
				for _, q := range []llmhttp.UsageQuery{allTime(account), {Account: account, From: noon, To: noon.Add(1)}} {
					sums := mustQuery(t, s, q)
					require.Len(t, sums, 1)
					assert.Equal(t, []int64{test.want, test.want, test.want}, []int64{sums[0].Units.PromptTokens, sums[0].Units.CompletionTokens, sums[0].Units.Images}, account)
				}
			}
		}
	})
}

// Every field of a record is stored, in a column that has its name.
func TestStore_EveryFieldIsStored(t *testing.T) {
	record := llmhttp.UsageRecord{Time: noon, Part: 3, Estimated: true, Unpriced: true, Operation: "images", ErrorClass: "timeout"}
	columns := map[string]any{"time": micros(noon), "part": int64(3), "estimated": true, "unpriced": true, "operation": "images", "error_class": "timeout"}
	number := int64(1000)
	fillNumbers := func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			if !v.Field(i).CanInt() {
				continue
			}
			number++
			v.Field(i).SetInt(number)
			columns[prefix+columnName(v.Type().Field(i).Name)] = number
		}
	}
	v := reflect.ValueOf(&record).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch value := v.Field(i).Addr().Interface().(type) {
		case *llmhttp.Units:
			fillNumbers(v.Field(i), "")
			value.CacheWrites = llm.CacheWrites{5 * time.Minute: 1, 30 * time.Minute: 2, time.Hour: 3, 12 * time.Hour: 4}
			columns["cache_writes"] = `{"5m":1,"30m":2,"1h":3,"12h":4}`
		case *llmhttp.Cost:
			fillNumbers(v.Field(i), "cost_")
		case *[]llmhttp.Label:
			*value = []llmhttp.Label{{Name: "project", Value: "x\x00"}, {Name: "a", Value: ""}}
			columns["labels"] = `{"a":"","project":"\\x7800"}` // as storedName
		case *[]llmhttp.SubjectID:
			*value = []llmhttp.SubjectID{{Kind: "team", ID: "<b>"}, {Kind: "team", ID: "a"}}
			columns["subjects"] = `[{"kind":"team","id":"\u003cb\u003e"},{"kind":"team","id":"a"}]`
		case *string:
			*value = "the " + name
			columns[columnName(name)] = *value
		default:
			require.False(t, v.Field(i).IsZero(), "the test sets every field: %s", name)
		}
	}
	columns["end_user"] = columns["user"] // which is a word of SQL
	delete(columns, "user")
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		mustRecord(t, s, record)
		assert.Equal(t, columns, readRow(t, s, "SELECT * FROM llmhttp_usage_records"))
		want := record.Sum()
		for _, q := range []llmhttp.UsageQuery{
			{Account: record.Account, From: noon.Truncate(day), To: noon.Truncate(day).Add(day)},
			{Account: record.Account, From: noon, To: noon.Add(time.Hour), Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: record.KeyID}},
		} {
			want.Start = q.From
			assert.Equal(t, []llmhttp.UsageSum{want}, mustQuery(t, s, q))
		}
		for _, by := range reportGroups {
			report, err := s.Report(t.Context(), manage.ReportQuery{From: noon.Truncate(day), To: noon.Truncate(day).Add(day), By: by, PerModel: true})
			require.NoError(t, err)
			require.Len(t, report.Rows, 1)
			want.Start = noon.Truncate(day)
			assert.Equal(t, []llmhttp.UsageSum{want}, report.Rows[0].Sums)
		}
		sum := readRow(t, s, "SELECT * FROM llmhttp_usage_sums WHERE kind = 'key'")
		for column, value := range columns {
			if n, isNumber := value.(int64); isNumber && n >= 1000 && column != "time" {
				assert.Equal(t, n, sum[column], column)
			}
		}
	})
}

// columnName returns the name of the column for a field: CacheWriteTokens is in
// cache_write_tokens.
func columnName(field string) string {
	name := regexp.MustCompile("[A-Z]+[a-z]*|[0-9]+[a-z]*").ReplaceAllString(field, "_$0")
	return strings.ToLower(strings.TrimPrefix(name, "_"))
}

// readRow reads the only row of a query by column.
func readRow(t testing.TB, s *Store, query string) map[string]any {
	t.Helper()
	rows, err := s.db.read.Query(query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	require.True(t, rows.Next())
	values, pointers := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	require.NoError(t, rows.Scan(pointers...))
	row := make(map[string]any)
	for i, column := range columns {
		if row[column] = values[i]; column == "estimated" || column == "unpriced" {
			row[column] = values[i] == true || values[i] == int64(1)
		}
	}
	require.False(t, rows.Next(), "there is one row")
	return row
}

// TestStore_UnusualNames checks that no name makes Record fail. A record that
// always fails would keep a Buffer from storing any other.
func TestStore_UnusualNames(t *testing.T) {
	names := []string{
		"", "'", `"`, `\`, `\x`, `\x00`, ";", "--", "$1", "%s", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\U0010ffff", "é", "e\u0301",
		"'); DROP TABLE llmhttp_usage_sums; --", "x' OR '1'='1", "{1,2}", "NULL", strings.Repeat("\x00", 512), strings.Repeat("é", 256),
		strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y", strings.Repeat("\xff", 1<<20), strings.Repeat("'", 1<<20),
	}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var records []llmhttp.UsageRecord
		for _, name := range names {
			r := usageRecord("r"+name, name, name, noon, 1)
			r.KeyID, r.Operation, r.Protocol, r.User = name, llmhttp.Operation(name), name, name
			r.RequestID, r.ServedModel, r.Target, r.ServiceTier, r.ImageSize, r.ImageQuality = name, name, name, name, name, name
			r.Labels, r.Subjects = []llmhttp.Label{{Name: name, Value: name}}, []llmhttp.SubjectID{{Kind: name, ID: name}}
			records = append(records, r)
		}
		mustRecord(t, s, records...)
		mustRecord(t, s, records...)
		for _, name := range names {
			for _, q := range []llmhttp.UsageQuery{allTime(name), {Account: name, From: noon, To: noon.Add(time.Second), Step: time.Hour}} {
				sums := mustQuery(t, s, q)
				require.Len(t, sums, 1, "%.20q", name)
				assert.EqualValues(t, 1, sums[0].Requests)
				if len(name) <= maxName {
					assert.Equal(t, name, sums[0].Model)
				} else {
					assert.Equal(t, storedName(name), storedName(sums[0].Model))
				}
			}
		}
	})
}

// Sums of further subjects outlast the records, and those of kinds that have other columns are not
// counted twice.
func TestStore_SumsOfSubjects(t *testing.T) {
	team := llmhttp.SubjectID{Kind: "team", ID: "search"}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for i := range 3 {
			with, without := usageRecord(fmt.Sprint("with", i), "acme", "m", noon.Add(time.Duration(i)*day), 1), usageRecord(fmt.Sprint("without", i), "acme", "m", noon, 1)
			with.Subjects = []llmhttp.SubjectID{team, team, {Kind: llmhttp.KindKey, ID: with.KeyID}, {Kind: llmhttp.KindAccount, ID: "acme"}, {ID: "x"}, {Kind: llmhttp.KindUser, ID: "u"}}
			mustRecord(t, s, with, without)
			mustRecord(t, s, with)
		}
		count := func(subject llmhttp.SubjectID) int64 {
			q := allTime("acme")
			q.Subject = subject
			return countRequests(mustQuery(t, s, q))
		}
		check := func() {
			t.Helper()
			assert.EqualValues(t, 3, count(team))
			assert.EqualValues(t, 6, count(llmhttp.SubjectID{}))
			assert.EqualValues(t, 6, count(llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}))
			assert.Zero(t, count(llmhttp.SubjectID{Kind: "team", ID: "sear"}))
			assert.Zero(t, count(llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "u"}))
		}
		check()
		_, err := s.Prune(t.Context(), noon.Add(10*day))
		require.NoError(t, err)
		check()
		for _, kind := range []string{"", "Team"} {
			_, err := s.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", Subject: llmhttp.SubjectID{Kind: kind, ID: "x"}, From: noon, To: noon.Add(day)})
			assert.ErrorIs(t, err, errors.ErrUnsupported, kind)
		}
	})
}

func TestStore_QuerySortsByOriginalName(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		names := []string{"\x00", "", "a", "\xff", "B", "\\", "é", "\x7f", "a\x00"}
		for i, name := range names {
			mustRecord(t, s, usageRecord(fmt.Sprint(i), "acme", name, noon, 1))
		}
		slices.Sort(names)
		var got []string
		for _, sum := range mustQuery(t, s, allTime("acme")) {
			got = append(got, sum.Model)
		}
		assert.Equal(t, names, got)
	})
}

func TestStore_ExtremeTimes(t *testing.T) {
	earliest, latest := time.Unix(math.MinInt64>>1, 0), time.Unix(math.MaxInt64>>1, 0)
	times := []time.Time{
		{},
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(-30000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(0, 0),
		time.Unix(-1, 0),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(30000, 1, 1, 0, 0, 0, 0, time.UTC),
		latest,
		earliest,
	}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for i, at := range times {
			account := fmt.Sprint("a", i)
			mustRecord(t, s, usageRecord(account, account, "m", at, 1))
			for _, step := range []time.Duration{0, 1, time.Hour, day, 36 * time.Hour, math.MaxInt64} {
				sums := mustQuery(t, s, llmhttp.UsageQuery{Account: account, From: earliest, To: latest.Add(1), Step: step})
				assert.EqualValues(t, 1, countRequests(sums), "%v by %v", at, step)
				if at == earliest || at == latest {
					continue // outside of the range that is stored exactly
				}
				from := at.Truncate(time.Microsecond)
				to := from.Add(time.Microsecond)
				sums = mustQuery(t, s, llmhttp.UsageQuery{Account: account, From: from, To: to, Step: step})
				require.Len(t, sums, 1, "%v by %v", at, step)
				assert.True(t, sums[0].Start.Equal(from))
				assert.Empty(t, mustQuery(t, s, llmhttp.UsageQuery{Account: account, From: to, To: to.Add(100 * day), Step: step}))
				assert.Empty(t, mustQuery(t, s, llmhttp.UsageQuery{Account: account, From: from.Add(-100 * day), To: from, Step: step}))
			}
		}
	})
}

// asInt returns n as an int. It lets tests of large numbers compile where ints have 32 bits.
func asInt(n int64) int { return int(n) }
