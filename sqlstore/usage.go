package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A record is a [llmhttp.UsageRecord] as it is stored.
type record struct {
	id, account, keyID, model, endpoint string
	time                                int64
	prompt, completion, images          int64
	estimated                           bool
}

// A tally is what was used. Sums beyond what an int64 holds stay at its bounds.
type tally struct{ requests, prompt, completion, images int64 }

func (t *tally) add(u tally) {
	t.requests = addUp(t.requests, u.requests)
	t.prompt = addUp(t.prompt, u.prompt)
	t.completion = addUp(t.completion, u.completion)
	t.images = addUp(t.images, u.images)
}

func addUp(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// A dayKey is whose sum of a day it is.
type dayKey struct {
	account string
	day     int64
	model   string
}

func (k dayKey) compare(l dayKey) int {
	return cmp.Or(strings.Compare(k.account, l.account), cmp.Compare(k.day, l.day), strings.Compare(k.model, l.model))
}

// maxBatch is how many records are stored in one transaction.
const maxBatch = 5000

// Record implements [llmhttp.UsageStore]. When it returns nil, the records are
// committed. When it fails, some of them may be, and the call may be repeated.
//
// It refuses no record. Of an ID, an account, a key's ID, a model or an endpoint
// of more than 512 bytes it keeps the beginning and a hash. Of Usage, it keeps
// the tokens of prompt and completion.
//
// A record whose ID was stored is skipped as long as that record is kept; see
// [Store.Prune].
func (s *Store) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	rows := make([]record, len(records))
	for i := range records {
		r := &records[i]
		rows[i] = record{
			id: storedName(r.ID), account: storedName(r.Account), keyID: storedName(r.KeyID), model: storedName(r.Model), endpoint: storedName(string(r.Endpoint)),
			time:   micros(r.Time),
			prompt: int64(r.Usage.PromptTokens), completion: int64(r.Usage.CompletionTokens), images: int64(r.Images),
			estimated: r.Estimated,
		}
	}
	// Of those with the same ID, the first counts.
	slices.SortStableFunc(rows, func(a, b record) int { return strings.Compare(a.id, b.id) })
	rows = slices.CompactFunc(rows, func(a, b record) bool { return a.id == b.id })
	for batch := range slices.Chunk(rows, maxBatch) {
		err := s.retry(ctx, s.isTransient, func() error { return s.addUsage(ctx, s.write, batch) })
		if err != nil {
			return s.fail("recording usage", err)
		}
	}
	return nil
}

// Query implements [llmhttp.UsageStore]. It reads the sums of days, where a day
// of UTC lies in one period, and the records of other days: it takes a time
// that depends on the number of days, and not of requests, if From and To are
// midnights in UTC and Step is of whole days.
//
// Where the records of such another day were pruned, all that was used of that
// day counts as used when it began.
func (s *Store) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if !q.From.Before(q.To) {
		return nil, nil
	}
	p := periods{q.From, q.To, max(q.Step, 0)}
	sums := make(sums)
	read := func() error {
		clear(sums)
		if p.areDays() {
			_, err := s.sumDays(ctx, s.read, q.Account, p, math.MinInt64, sums)
			return err
		}
		// All that is read is of one moment.
		opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		return inTx(ctx, s.read, opts, func(tx *sql.Tx) error {
			var pruned int64
			if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), $1) FROM llmhttp_state WHERE name = 'pruned'", int64(math.MinInt64)).Scan(&pruned); err != nil {
				return err
			}
			spans, err := s.sumDays(ctx, tx, q.Account, p, pruned, sums)
			if err != nil {
				return err
			}
			for _, span := range spans {
				if err := s.sumRecords(ctx, tx, q.Account, p, span, sums); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := s.retryRead(ctx, read); err != nil {
		return nil, s.fail("querying usage", err)
	}
	return sums.list(q.From.Location()), nil
}

// A span is a range of time, without its end.
type span struct{ from, to int64 }

// sumDays adds the days that lie in one of p, and those before pruned as of
// when they began. It returns the rest of the days on which something was used.
func (s *Store) sumDays(ctx context.Context, q querier, account string, p periods, pruned int64, sums sums) ([]span, error) {
	from, to := ceilMicros(p.from), ceilMicros(p.to)
	rows, err := q.QueryContext(ctx, `
		SELECT day, model, requests, prompt_tokens, completion_tokens, images
		FROM llmhttp_usage_days WHERE account = $1 AND day >= $2 AND day < $3 ORDER BY day`, storedName(account), dayOf(from), to)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var rest []span
	for rows.Next() {
		var d int64
		var model string
		var t tally
		if err := rows.Scan(&d, &model, &t.requests, &t.prompt, &t.completion, &t.images); err != nil {
			return nil, err
		}
		begin, next := fromMicros(d), fromMicros(d+dayMicros)
		switch {
		case d < pruned:
			if d >= from {
				sums.add(p.start(begin), model, t)
			}
		case d >= from && !next.After(p.to) && p.start(begin).Equal(p.start(next.Add(-time.Microsecond))):
			sums.add(p.start(begin), model, t)
		case len(rest) > 0 && rest[len(rest)-1].to >= d:
			rest[len(rest)-1].to = min(d+dayMicros, to)
		default:
			rest = append(rest, span{max(d, from), min(d+dayMicros, to)})
		}
	}
	return rest, rows.Err()
}

// sumRecords adds the records of a span.
func (s *Store) sumRecords(ctx context.Context, q querier, account string, p periods, span span, sums sums) error {
	// The database adds up what is of one period, or else of one moment. Sums
	// of the upper and of the lower halves never overflow.
	origin, step := p.micros()
	rows, err := q.QueryContext(ctx, `
		SELECT CAST($2 AS bigint) + (time - $2) / $3 * $3, model, count(*),
			CAST(sum(prompt_tokens     >> 32) AS bigint), CAST(sum(prompt_tokens     & 4294967295) AS bigint),
			CAST(sum(completion_tokens >> 32) AS bigint), CAST(sum(completion_tokens & 4294967295) AS bigint),
			CAST(sum(images            >> 32) AS bigint), CAST(sum(images            & 4294967295) AS bigint)
		FROM llmhttp_usage_records WHERE account = $1 AND time >= $4 AND time < $5
		GROUP BY 1, 2`, storedName(account), origin, step, span.from, span.to)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at, requests int64
		var model string
		var prompt, completion, images halves
		if err := rows.Scan(&at, &model, &requests, &prompt.upper, &prompt.lower, &completion.upper, &completion.lower, &images.upper, &images.lower); err != nil {
			return err
		}
		sums.add(p.start(fromMicros(at)), model, tally{requests, prompt.join(), completion.join(), images.join()})
	}
	return rows.Err()
}

// halves are sums of the upper and of the lower 32 bits of numbers.
type halves struct{ upper, lower int64 }

func (h halves) join() int64 {
	upper := h.upper + h.lower>>32
	switch {
	case upper > math.MaxInt32:
		return math.MaxInt64
	case upper < math.MinInt32:
		return math.MinInt64
	}
	return upper<<32 | h.lower&math.MaxUint32
}

// periods are those of a query. There is one if step is 0.
type periods struct {
	from, to time.Time
	step     time.Duration
}

// areDays reports whether each of p is of whole days.
func (p periods) areDays() bool {
	midnight := func(t time.Time) bool { return t.Equal(t.Truncate(day)) }
	return midnight(p.from) && midnight(p.to) && p.step%day == 0
}

// start returns when the period of t begins, which is not before p.from.
func (p periods) start(t time.Time) time.Time {
	if p.step == 0 {
		return p.from
	}
	if d := t.Sub(p.from); d < math.MaxInt64 {
		return t.Add(-(d % p.step))
	}
	// The difference is more than a time.Duration holds.
	d := big.NewInt(t.Unix() - p.from.Unix())
	d.Mul(d, big.NewInt(int64(time.Second)))
	d.Add(d, big.NewInt(int64(t.Nanosecond()-p.from.Nanosecond())))
	return t.Add(-time.Duration(d.Mod(d, big.NewInt(int64(p.step))).Int64()))
}

// micros returns p in microseconds; or, if p is no such thing, periods of one
// microsecond.
func (p periods) micros() (from, step int64) {
	from = micros(p.from)
	switch {
	case p.step == 0:
		return from, 4 * maxMicros // more than there is
	case p.step%time.Microsecond == 0 && p.from.Nanosecond()%int(time.Microsecond) == 0 && from > -maxMicros:
		return from, p.step.Microseconds()
	}
	return from, 1
}

// ceilMicros is micros, rounded up: times from there on are not before t.
func ceilMicros(t time.Time) int64 {
	if t.After(maxTime) {
		return maxMicros + 1
	}
	return micros(t.Add(time.Microsecond - 1))
}

// sums are what was used in periods, which begin at instants.
type sums map[sumKey]tally

type sumKey struct {
	second int64 // Unix time: nanoseconds would not last for every time.Time
	nano   int
	model  string
}

func (k sumKey) compare(l sumKey) int {
	return cmp.Or(cmp.Compare(k.second, l.second), cmp.Compare(k.nano, l.nano), strings.Compare(k.model, l.model))
}

func (s sums) add(start time.Time, stored string, t tally) {
	key := sumKey{start.Unix(), start.Nanosecond(), originalName(stored)}
	sum := s[key]
	sum.add(t)
	s[key] = sum
}

func (s sums) list(loc *time.Location) []llmhttp.UsageSum {
	var list []llmhttp.UsageSum
	for _, key := range slices.SortedFunc(maps.Keys(s), sumKey.compare) {
		t := s[key]
		list = append(list, llmhttp.UsageSum{
			Start: time.Unix(key.second, int64(key.nano)).In(loc), Model: key.model,
			Requests: t.requests, PromptTokens: t.prompt, CompletionTokens: t.completion, Images: t.images,
		})
	}
	return list
}
