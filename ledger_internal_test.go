package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/budget"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	subjectKey     = SubjectID{KindKey, "k"}
	subjectAccount = SubjectID{KindAccount, "a"}
)

// newLedger returns the ledger of a request with the limits of a key and of an account.
func newLedger(t *testing.T, limiter Limiter, ofKey, ofAccount Limits) *ledger {
	t.Helper()
	l := &ledger{books: &books{limiter: limiter}, log: &requestLog{logger: slog.New(slog.DiscardHandler), ctx: t.Context(), cred: &credential{secret: "secret-of-a-test"}}}
	l.open(&Key{ID: "k", Account: "a", Limits: ofKey, Subjects: []Subject{{subjectAccount, ofAccount}}}, &chatOperation)
	return l
}

// A drawLog is a Limiter in memory that keeps the draws and the slots of each call.
type drawLog struct {
	Limiter
	taken, adjusted [][]BucketAmount
	acquired        [][]SlotAmount
	slots           localSlots
}

func (l *drawLog) Take(ctx context.Context, draws ...BucketAmount) ([]BucketLevel, error) {
	l.taken = append(l.taken, append([]BucketAmount(nil), draws...))
	return l.Limiter.Take(ctx, draws...)
}

func (l *drawLog) Adjust(ctx context.Context, draws ...BucketAmount) error {
	l.adjusted = append(l.adjusted, append([]BucketAmount(nil), draws...))
	return l.Limiter.Adjust(ctx, draws...)
}

func (l *drawLog) Acquire(ctx context.Context, slots ...SlotAmount) (func(), int, error) {
	l.acquired = append(l.acquired, append([]SlotAmount(nil), slots...))
	return l.slots.Acquire(ctx, slots...)
}

// perYear returns a Rate of n that gains nothing during a test.
func perYear(n int) Rate { return Rate{N: n, Per: 365 * day} }

func TestLedger_SeveralSubjects(t *testing.T) {
	ofKey := Limits{Requests: perYear(5), Tokens: perYear(1000), Concurrent: 2}
	ofAccount := Limits{Requests: perYear(50), Tokens: perYear(4000), Concurrent: 7}
	requests := func(n int64) []BucketAmount {
		return []BucketAmount{{subjectKey, BucketRequests, ofKey.Requests, n}, {subjectAccount, BucketRequests, ofAccount.Requests, n}}
	}
	tokens := func(n int64) []BucketAmount {
		return []BucketAmount{{subjectKey, BucketTokens, ofKey.Tokens, n}, {subjectAccount, BucketTokens, ofAccount.Tokens, n}}
	}
	admitted := []BucketAmount{requests(1)[0], tokens(0)[0], requests(1)[1], tokens(0)[1]}
	start := func(t *testing.T) (*drawLog, *ledger) {
		l := &drawLog{Limiter: NewLimiter()}
		lg := newLedger(t, l, ofKey, ofAccount)
		require.NoError(t, lg.admit(t.Context()))
		assert.Equal(t, [][]BucketAmount{admitted}, l.taken)
		assert.Equal(t, [][]SlotAmount{{{subjectKey, SlotConcurrent, 1, 2}, {subjectAccount, SlotConcurrent, 1, 7}}}, l.acquired)
		assert.Equal(t, 2, l.slots.table.Len())
		return l, lg
	}
	t.Run("success", func(t *testing.T) {
		l, lg := start(t)
		lg.commit()
		require.NoError(t, lg.reserve(t.Context(), new(UsageRecord), estimate{tokens: 100}))
		require.NoError(t, lg.reserve(t.Context(), new(UsageRecord), estimate{tokens: 130}))
		assert.Equal(t, [][]BucketAmount{admitted, tokens(100), tokens(30)}, l.taken)
		lg.settle(t.Context(), new(storedRecord), &outcome{called: true, reported: &llm.Usage{PromptTokens: 4, CompletionTokens: 6}})
		lg.refund(t.Context())
		assert.Equal(t, [][]BucketAmount{tokens(10 - 130)}, l.adjusted)
		lg.slots.release()
		assert.Zero(t, l.slots.table.Len())
		levels, err := l.Limiter.Take(t.Context(), append(requests(0), tokens(0)...)...)
		require.NoError(t, err)
		assert.Equal(t, []int64{4, 49, 990, 3990}, []int64{levels[0].Remaining, levels[1].Remaining, levels[2].Remaining, levels[3].Remaining})
	})
	t.Run("refund", func(t *testing.T) {
		l, lg := start(t)
		lg.refund(t.Context())
		assert.Equal(t, [][]BucketAmount{requests(-1)}, l.adjusted)
		assert.EqualValues(t, 5, lg.limits().requests.info.Remaining)
		assert.EqualValues(t, 50, lg.subjects[1].states.requests.info.Remaining)
	})
	t.Run("load", func(t *testing.T) {
		l, lg := start(t)
		require.NoError(t, lg.takeLoad(t.Context()))
		assert.Equal(t, requests(1), l.taken[1])
	})
	t.Run("a read", func(t *testing.T) {
		l := &drawLog{Limiter: NewLimiter()}
		lg := newLedger(t, l, Limits{Tokens: ofKey.Tokens}, ofAccount)
		lg.readLevels(t.Context())
		assert.Equal(t, [][]BucketAmount{{tokens(0)[0], requests(0)[1], tokens(0)[1]}}, l.taken)
	})
	t.Run("the account alone has limits", func(t *testing.T) {
		l := &drawLog{Limiter: NewLimiter()}
		lg := newLedger(t, l, Limits{}, ofAccount)
		require.NoError(t, lg.admit(t.Context()))
		require.NoError(t, lg.reserve(t.Context(), new(UsageRecord), estimate{tokens: 5}))
		assert.Equal(t, [][]BucketAmount{{requests(1)[1], tokens(0)[1]}, {tokens(5)[1]}}, l.taken)
		assert.Equal(t, [][]SlotAmount{{{subjectAccount, SlotConcurrent, 1, 7}}}, l.acquired)
	})
}

// A refusal names the subject whose limit was reached, unless that is the key, and leaves the
// other subjects as they were.
func TestLedger_SubjectThatRefuses(t *testing.T) {
	none := Rate{N: -1}
	for _, tt := range []struct {
		name               string
		ofKey, ofAccount   Limits
		wantRefused        LimitRefusal
		wantMessage        string
		wantKey, wantLimit Limits // rates of which nothing was taken
	}{
		{"requests of the key", Limits{Requests: none}, Limits{Requests: perYear(5)}, LimitRefusal{subjectKey, BucketRequests},
			"Rate limit reached on requests per min (RPM): Limit 0.", Limits{}, Limits{Requests: perYear(5)}},
		{"requests of the account", Limits{Requests: perYear(5)}, Limits{Requests: none}, LimitRefusal{subjectAccount, BucketRequests},
			"Rate limit reached for your account on requests per min (RPM): Limit 0.", Limits{Requests: perYear(5)}, Limits{}},
		{"tokens of the account", Limits{Tokens: perYear(50)}, Limits{Tokens: Rate{N: 30, Per: time.Minute, Burst: 30}}, LimitRefusal{subjectAccount, BucketTokens},
			"Request too large for your account: Limit 30 tokens, Requested 40. Ask for fewer tokens, or shorten the messages.", Limits{Tokens: perYear(50)}, Limits{}},
		{"tokens of the key", Limits{Tokens: perYear(30)}, Limits{Tokens: perYear(50)}, LimitRefusal{subjectKey, BucketTokens},
			"Request too large: Limit 30 tokens, Requested 40. Ask for fewer tokens, or shorten the messages.", Limits{}, Limits{Tokens: perYear(50)}},
		{"slots of the key", Limits{Concurrent: -1}, Limits{Concurrent: 1}, LimitRefusal{subjectKey, SlotConcurrent},
			"Too many requests in progress: Limit 0. Please try again when one has ended.", Limits{}, Limits{}},
		{"slots of the account", Limits{Concurrent: 1}, Limits{Concurrent: -1}, LimitRefusal{subjectAccount, SlotConcurrent},
			"Too many requests in progress for your account: Limit 0. Please try again when one has ended.", Limits{}, Limits{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &drawLog{Limiter: NewLimiter()}
			lg := newLedger(t, l, tt.ofKey, tt.ofAccount)
			err := lg.admit(t.Context())
			if err == nil {
				err = lg.reserve(t.Context(), new(UsageRecord), estimate{tokens: 40})
			}
			e, ok := err.(*llm.Error)
			require.True(t, ok, "%v", err)
			assert.Equal(t, 429, e.Status)
			assert.Equal(t, tt.wantMessage, e.Message)
			assert.Equal(t, tt.wantRefused, lg.refused)
			assert.Zero(t, l.slots.table.Len())
			for s, limits := range map[SubjectID]Limits{subjectKey: tt.wantKey, subjectAccount: tt.wantLimit} {
				for bucket, rate := range map[string]Rate{BucketRequests: limits.Requests, BucketTokens: limits.Tokens} {
					if rate.N > 0 {
						levels, err := l.Limiter.Take(t.Context(), BucketAmount{s, bucket, rate, 0})
						require.NoError(t, err)
						assert.EqualValues(t, rate.N, levels[0].Remaining, "%s of the %s", bucket, s.Kind)
					}
				}
			}
		})
	}
}

// Of several subjects, the headers have the limit of which the smallest part remains, or the
// one that resets later.
func TestLedger_ReportsNearestLimit(t *testing.T) {
	level := func(limit int, remaining int64, reset time.Duration) (Rate, BucketLevel) {
		return PerMinute(limit), BucketLevel{Remaining: remaining, ResetAfter: reset}
	}
	for _, tt := range []struct {
		name                     string
		keyLimit, accountLimit   int
		keyLeft, accountLeft     int64
		keyReset, accountReset   time.Duration
		keyUnknown, accUnknown   bool
		wantLimit, wantRemaining int64
	}{
		{"the key", 10, 1000, 1, 999, 9, 1, false, false, 10, 1},
		{"the account, of which more remain", 10, 1000, 8, 500, 9, 1, false, false, 1000, 500},
		{"a tie, the key resets later", 10, 100, 5, 50, 9, 8, false, false, 10, 5},
		{"a tie, the account resets later", 10, 100, 5, 50, 8, 9, false, false, 100, 50},
		{"a tie in everything", 10, 10, 5, 5, 8, 8, false, false, 10, 5},
		{"the account permits nothing", 10, -1, 5, 0, 8, 0, false, false, 0, 0},
		{"the account is unknown", 10, 100, 5, 0, 8, 0, false, true, 10, 5},
		{"the key is unknown", 10, 100, 0, 50, 0, 8, true, false, 100, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subjects := []limitedSubject{{id: subjectKey}, {id: subjectAccount}}
			keyRate, keyLevel := level(tt.keyLimit, tt.keyLeft, tt.keyReset)
			accountRate, accountLevel := level(tt.accountLimit, tt.accountLeft, tt.accountReset)
			keyLevel.Unknown, accountLevel.Unknown = tt.keyUnknown, tt.accUnknown
			for _, bucket := range []string{BucketRequests, BucketTokens} {
				noteLevels(subjects, []BucketAmount{{subjectKey, bucket, keyRate, 0}, {subjectAccount, bucket, accountRate, 0}}, []BucketLevel{keyLevel, accountLevel})
			}
			limits := nearestLimits(subjects)
			for _, got := range []*LimitInfo{limits.requests.get(), limits.tokens.get()} {
				require.NotNil(t, got)
				assert.Equal(t, [2]int64{tt.wantLimit, tt.wantRemaining}, [2]int64{got.Limit, got.Remaining})
			}
		})
	}
	t.Run("an earlier state remains", func(t *testing.T) {
		subjects := []limitedSubject{{id: subjectKey}, {id: subjectAccount}}
		draws := []BucketAmount{{subjectKey, BucketTokens, PerMinute(10), 0}, {subjectAccount, BucketTokens, PerMinute(10), 0}}
		noteLevels(subjects, draws, []BucketLevel{{Remaining: 9}, {Remaining: 3}})
		noteLevels(subjects, draws, []BucketLevel{{Remaining: 4}, {Unknown: true}})
		assert.EqualValues(t, 3, nearestLimits(subjects).tokens.info.Remaining)
	})
}

// Of several limits that refuse, the one that has to be waited for longest is told.
func TestRefusal_LongestWait(t *testing.T) {
	draws := []BucketAmount{{subjectKey, BucketTokens, PerMinute(10), 1}, {subjectAccount, BucketRequests, PerMinute(10), 1}, {subjectAccount, BucketTokens, PerMinute(10), 1}}
	refused, err := refusal(draws, []BucketLevel{{RetryAfter: time.Second}, {RetryAfter: time.Minute}, {Unknown: true}})
	assert.Equal(t, LimitRefusal{subjectAccount, BucketRequests}, refused)
	assert.ErrorContains(t, err, "Rate limit reached for your account on requests")
	refused, err = refusal(draws, []BucketLevel{{}, {}, {}})
	assert.Zero(t, refused)
	assert.NoError(t, err)
}

// The line of a request names the kind of the subject that refused it, unless that is the key.
func TestLogRequests_SubjectThatRefused(t *testing.T) {
	for _, tt := range []struct{ kind, want string }{{KindKey, ""}, {KindAccount, "account"}, {"", ""}} {
		s := RequestSummary{Refused: LimitRefusal{SubjectID{tt.kind, "id"}, BucketTokens}}
		var got string
		for _, a := range s.logAttrs(nil, httptest.NewRequest("POST", "/", nil)) {
			if a.Key == "limit_subject" {
				got = a.Value.String()
			}
		}
		assert.Equal(t, tt.want, got, tt.kind)
	}
}

// A ledgerStore is a UsageStore that keeps what is recorded, or fails.
type ledgerStore struct {
	UsageStore
	recorded []UsageRecord
	err      error
}

func (s *ledgerStore) Record(_ context.Context, records ...UsageRecord) error {
	s.recorded = append(s.recorded, records...)
	return s.err
}

func (s *ledgerStore) Query(context.Context, UsageQuery) ([]UsageSum, error) { return nil, s.err }

// What a request used is what the Backend has reported, or an estimate, or nothing.
func TestLedger_SettledUsage(t *testing.T) {
	failed := errors.New("failed")
	text := tokens.Counter{} // 3 tokens
	text.Add(&llm.Delta{Content: "nine more bytes"[:9]})
	for name, test := range map[string]struct {
		operation     Operation
		outcome       outcome
		want          Units
		wantEstimated bool
		wantRecorded  bool
	}{
		"reported":                        {OperationChat, outcome{called: true, reported: &llm.Usage{PromptTokens: 4, CompletionTokens: 6}}, Units{PromptTokens: 4, CompletionTokens: 6}, false, true},
		"only a total":                    {OperationEmbeddings, outcome{called: true, reported: &llm.Usage{TotalTokens: 9}}, Units{PromptTokens: 9}, false, true},
		"a total beside the prompt":       {OperationChat, outcome{called: true, reported: &llm.Usage{PromptTokens: 4, TotalTokens: 9}}, Units{PromptTokens: 4, CompletionTokens: 5}, false, true},
		"not reported":                    {OperationChat, outcome{called: true, output: &text}, Units{PromptTokens: 10, CompletionTokens: 3}, true, true},
		"images":                          {OperationImages, outcome{called: true, units: &Units{Images: 2}}, Units{Images: 2}, false, true},
		"images that nobody waited for":   {OperationImages, outcome{called: true, err: failed, clientLeft: true}, Units{Images: 3}, true, true},
		"failed before its reply":         {OperationChat, outcome{called: true, err: failed, errStatus: 500, output: &text}, Units{}, false, true},
		"failed later":                    {OperationChat, outcome{called: true, err: failed, errStatus: 500, output: &text, chunks: chunkStats{count: 1}}, Units{PromptTokens: 10, CompletionTokens: 3}, true, true},
		"failed, and reported":            {OperationChat, outcome{called: true, err: failed, errStatus: 500, reported: &llm.Usage{PromptTokens: 4}}, Units{PromptTokens: 4}, false, true},
		"the client left before a reply":  {OperationChat, outcome{called: true, err: failed, clientLeft: true, output: new(tokens.Counter)}, Units{PromptTokens: 10}, true, true},
		"the client left, nothing sent":   {OperationChat, outcome{called: true, err: failed, clientLeft: true, notSent: true}, Units{}, false, true},
		"no such model":                   {OperationChat, outcome{called: true, err: failed, errStatus: 404}, Units{}, false, false},
		"no such model, after a chunk":    {OperationChat, outcome{called: true, err: failed, errStatus: 404, output: &text, chunks: chunkStats{count: 1}}, Units{PromptTokens: 10, CompletionTokens: 3}, true, true},
		"refused":                         {OperationChat, outcome{err: failed, errStatus: 429}, Units{}, false, false},
		"refused after it loaded":         {OperationChat, outcome{err: failed, errStatus: 429, loaded: 80}, Units{PromptTokens: 20}, true, true},
		"refused after it loaded little":  {OperationChat, outcome{err: failed, errStatus: 429, loaded: 1}, Units{PromptTokens: 10}, true, true},
		"reported, but the client left":   {OperationChat, outcome{called: true, err: failed, clientLeft: true, reported: &llm.Usage{PromptTokens: 1}}, Units{PromptTokens: 1}, false, true},
		"negative and too many of a kind": {OperationChat, outcome{called: true, reported: &llm.Usage{PromptTokens: -1, CompletionTokens: 2, CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: 5}}}, Units{CompletionTokens: 2, ReasoningTokens: 2}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			store := new(ledgerStore)
			limiter := &drawLog{Limiter: NewLimiter()}
			lg := newLedger(t, limiter, Limits{Tokens: perYear(1000)}, Limits{})
			lg.store = store
			record := new(storedRecord)
			record.get().Operation = test.operation
			lg.op = operations()[slices.IndexFunc(operations(), func(op *operation) bool { return op.name == test.operation })]
			expected := estimate{prompt: 10, tokens: 50, minTokens: 50}
			if test.operation == OperationImages {
				expected.units = &Units{Images: 3}
			}
			require.NoError(t, lg.reserve(t.Context(), record.get(), expected))
			lg.settle(t.Context(), record, &test.outcome)
			assert.Equal(t, test.want, record.get().Units)
			assert.Equal(t, test.wantEstimated, record.get().Estimated)
			assert.Equal(t, test.wantRecorded, len(store.recorded) == 1)
			if test.wantRecorded {
				assert.Equal(t, test.want, store.recorded[0].Units)
			}
			levels, err := limiter.Take(t.Context(), BucketAmount{subjectKey, BucketTokens, perYear(1000), 0})
			require.NoError(t, err)
			assert.EqualValues(t, 1000-test.want.Tokens(), levels[0].Remaining, "the reservation is corrected")
			lg.settle(t.Context(), record, &outcome{called: true, reported: &llm.Usage{PromptTokens: 77}})
			assert.Equal(t, test.want, record.get().Units, "a request is settled once")
		})
	}
}

// A failure of the host's functions at the end of a request is told, and the others are called
// nevertheless.
func TestLedger_SettlingFails(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		price                func(*UsageRecord) (Cost, error)
		store                error
		wantPrice, wantStore error
		wantUnpriced         bool
	}{
		"nothing":          {func(*UsageRecord) (Cost, error) { return Cost{Input: 5}, nil }, nil, nil, nil, false},
		"the price":        {func(*UsageRecord) (Cost, error) { return Cost{Input: 5}, failed }, nil, failed, nil, true},
		"the price panics": {func(*UsageRecord) (Cost, error) { panic("price") }, nil, errNotPriced, nil, true},
		"the store":        {func(*UsageRecord) (Cost, error) { return Cost{Input: 5}, nil }, failed, nil, failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := &ledgerStore{err: test.store}
			limiter := &drawLog{Limiter: NewLimiter()}
			lg := newLedger(t, limiter, Limits{Tokens: perYear(1000)}, Limits{})
			lg.store, lg.price = store, test.price
			record := new(storedRecord)
			require.NoError(t, lg.reserve(t.Context(), record.get(), estimate{tokens: 50}))
			lg.settle(t.Context(), record, &outcome{called: true, reported: &llm.Usage{PromptTokens: 4}})
			assert.Equal(t, test.wantPrice, lg.priceErr)
			assert.Equal(t, test.wantStore, lg.recordErr)
			if assert.Len(t, store.recorded, 1) {
				assert.Equal(t, test.wantUnpriced, store.recorded[0].Unpriced)
				assert.Equal(t, test.wantUnpriced, store.recorded[0].Cost == Cost{})
			}
			assert.Len(t, limiter.adjusted, 1)
		})
	}
}

// Of the work that a request did before the Backend was called, it gets nothing back.
func TestLedger_Commits(t *testing.T) {
	refused := &outcome{err: errors.New("refused"), errStatus: 400}
	for name, test := range map[string]struct {
		commit func(*ledger)
		want   [][]BucketAmount
	}{
		"no":     {func(*ledger) {}, [][]BucketAmount{{{subjectKey, BucketRequests, perYear(5), -1}}, {{subjectKey, BucketTokens, perYear(1000), -50}}}},
		"yes":    {(*ledger).commit, [][]BucketAmount{{{subjectKey, BucketTokens, perYear(1000), -50}}}},
		"costly": {(*ledger).commitCostly, nil},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := &drawLog{Limiter: NewLimiter()}
			lg := newLedger(t, limiter, Limits{Requests: perYear(5), Tokens: perYear(1000)}, Limits{})
			require.NoError(t, lg.admit(t.Context()))
			require.NoError(t, lg.reserve(t.Context(), new(UsageRecord), estimate{tokens: 50}))
			test.commit(lg)
			lg.refund(t.Context())
			lg.settle(t.Context(), new(storedRecord), refused)
			assert.Equal(t, test.want, limiter.adjusted)
		})
	}
}

// The errors of the Limiter and of the UsageStore have their class, and refusals have none.
func TestLedger_ErrorClasses(t *testing.T) {
	failed := errors.New("failed")
	quota := Limits{Quota: Quota{Tokens: 5}}
	for name, test := range map[string]struct {
		limiter    Limiter
		store      UsageStore
		limits     Limits
		wantClass  ErrorClass
		wantStatus int
	}{
		"the Limiter":        {brokenLimiter{failed}, nil, Limits{Tokens: perYear(100)}, ClassLimiter, 503},
		"its own *Error":     {brokenLimiter{llm.Errorf(500, "", "")}, nil, Limits{Tokens: perYear(100)}, ClassLimiter, 500},
		"a rate":             {NewLimiter(), nil, Limits{Tokens: Rate{N: 60, Per: time.Hour, Burst: 60}}, "", 0},
		"no such rate":       {NewLimiter(), nil, Limits{Tokens: Rate{N: -1}}, "", 429},
		"the UsageStore":     {NewLimiter(), &ledgerStore{err: failed}, quota, ClassUsageStore, 503},
		"a small quota":      {NewLimiter(), new(ledgerStore), quota, "", 429},
		"no UsageStore":      {NewLimiter(), nil, quota, ClassInternal, 500},
		"a store of no keys": {NewLimiter(), &ledgerStore{err: errors.ErrUnsupported}, quota, ClassUsageStore, 500},
	} {
		t.Run(name, func(t *testing.T) {
			lg := newLedger(t, test.limiter, test.limits, Limits{})
			lg.store = test.store
			lg.quotas = budget.NewCache(lg.sumQuota)
			err := lg.reserve(t.Context(), &UsageRecord{Time: time.Now()}, estimate{tokens: 50, minTokens: 50})
			cred := &credential{r: httptest.NewRequest("POST", "/", nil)}
			assert.Equal(t, test.wantStatus, cred.errorStatus(err))
			assert.Equal(t, test.wantClass, classOf(err))
			assert.Equal(t, test.wantStatus == 429, lg.refused != LimitRefusal{})
		})
	}
}

// A brokenLimiter fails.
type brokenLimiter struct{ err error }

func (l brokenLimiter) Take(context.Context, ...BucketAmount) ([]BucketLevel, error) {
	return nil, l.err
}
func (l brokenLimiter) Adjust(context.Context, ...BucketAmount) error { return l.err }
