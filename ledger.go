// Admits a request by the limits of its subjects, and takes from these what it is expected to use.
// settle.go corrects that. These are the words for limits:
//
//   - A subject is whose limits bound a request: its end user, its key and what Key.Subjects lists.
//     ledger.subjects has them, the narrowest first. A limit is one of the fields of Limits.
//   - A rate is a limit on requests or tokens per time. A bucket enforces it: a token bucket of a
//     subject in the Limiter, of requests or of tokens.
//   - A slot is an amount of what a subject may have in use at a time: one of the requests in progress
//     that Limits.Concurrent permits, or what is reserved of a Quota with a Reserver.
//   - To reserve is to take the estimated tokens of a request before the Backend is called. To settle
//     is to correct that to what was used, and to record it.
//   - A quota is a limit on tokens or money in a long period, compared with the usage that the store
//     has recorded.

package llmhttp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/internal/budget"
	"github.com/llmhttp/llmhttp/llm"
)

// A ledger takes what a request uses from the limits of its subjects, and records it.
//
// Before the body is read, admit takes a slot and one request. When it was decoded, admitUser takes
// the same from the limits of the end user. Before the Backend is called, reserve reserves the
// tokens that the request is expected to use; a Protocol may have reserved a part of them before:
// see ReserveChat. When the request ends, settle corrects the reservation to what was used and
// records the usage.
//
// Errors of the Limiter and of the UsageStore have the class of these, and refusals have none.
// The methods of a ledger are called by the goroutine of ServeHTTP, and before a Backend is
// called by that of a function of a Protocol.
type ledger struct {
	*books
	log *requestLog
	key *Key       // nil until open was called
	op  *operation // the same

	// subjects are those whose limits bound the request, the narrowest first; empty before
	// open.
	subjects        []limitedSubject
	subjectsStorage [1]limitedSubject

	slots       heldSlots
	shared      *sharedQuota // nil if nothing is reserved with a Reserver
	expected    estimate     // that reserve was last called with
	prices      *priceData   // nil until copyToPrice was called
	reservation tokenReservation

	asked      bool // the Limiter was asked for levels
	refundable bool // admit has taken a request that refund may return
	costly     bool // what was taken from the rates is not returned: see commitCostly
	settled    bool
	userKnown  bool // admitUser was called
	uncounted  bool // setUsage has left out tokens that setCost may have to estimate

	// What it tells.
	refused   LimitRefusal // the limit that has refused the request
	usage     llm.Usage    // what was used; its numbers are those of UsageRecord.Units
	priceErr  error        // of Options.Price for the final record
	recordErr error        // of UsageStore.Record
}

// books are what the ledgers of a Handler share.
type books struct {
	limiter     Limiter
	localSlots  localSlots                       // if limiter is not a ConcurrencyLimiter
	keyLimits   Limits                           // of keys that have none
	store       UsageStore                       // nil if usage is not recorded
	price       func(*UsageRecord) (Cost, error) // nil if requests cost nothing
	countTokens func(model, text string) int
	quotas      *budget.Cache
}

// A limitedSubject is a subject whose limits bound a request.
type limitedSubject struct {
	id     SubjectID
	limits *Limits
	states limitStates
	quota  budget.Reservation

	admitted bool // the request that admit has taken from it may be given back: see refund
}

// A tokenReservation is what reserve has taken from buckets of the Limiter.
type tokenReservation struct {
	tokens  int
	draws   []BucketAmount  // empty if no subject has a bucket that counts tokens
	storage [2]BucketAmount // the storage of draws, and before that of the draws of admit and readLevels
}

// newDraws returns an empty list for n draws, in storage if they fit.
func (r *tokenReservation) newDraws(n int) []BucketAmount {
	if n <= len(r.storage) {
		return r.storage[:0]
	}
	return make([]BucketAmount, 0, n)
}

// An estimate is what a request is expected to use.
type estimate struct {
	prompt    int    // tokens of the prompt
	tokens    int    // all tokens
	minTokens int    // enough if a quota has less than tokens left
	units     *Units // what else the client asks for, such as images, and the time of the audio that it sends or gets; nil if nothing

	serviceTier string // that the client asks for; empty if none
}

// open begins the ledger of a request for op with the key k. All limits of the request are those of
// its subjects.
func (l *ledger) open(k *Key, op *operation) {
	l.key, l.op = k, op
	l.subjects = l.subjectsStorage[:0]
	if n := len(k.Subjects); n > 0 || k.PerUser != (Limits{}) {
		l.subjects = make([]limitedSubject, 0, n+2) // with the key and the end user
	}
	limits := &k.Limits
	if *limits == (Limits{}) {
		limits = &l.books.keyLimits
	}
	l.subjects = append(l.subjects, limitedSubject{id: SubjectID{KindKey, k.ID}, limits: limits})
	for i := range k.Subjects {
		l.subjects = append(l.subjects, limitedSubject{id: k.Subjects[i].ID, limits: &k.Subjects[i].Limits})
	}
}

// maxCompletionTokens returns the smallest Limits.MaxCompletionTokens of the subjects: zero if
// none has one, and a negative number if one permits none.
func (l *ledger) maxCompletionTokens() (most int) {
	for i := range l.subjects {
		if n := l.subjects[i].limits.MaxCompletionTokens; n != 0 && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

// reservable returns the number of tokens up to n that the limits of the subjects can ever allow
// a request.
func (l *ledger) reservable(n int) int {
	for i := range l.subjects {
		limits := l.subjects[i].limits
		if limits.Tokens.N != 0 {
			n = min(n, limits.Tokens.WithDefaults().Burst)
		}
		if limits.Quota.Tokens != 0 {
			n = min(n, limits.Quota.Tokens)
		}
	}
	return n
}

// admit takes the slots, and one request from the bucket of each subject that is known before
// the body is read.
func (l *ledger) admit(ctx context.Context) error { return l.admitSubjects(ctx, l.subjects) }

// admitUser is admit for the end user of the request. It is called before reserve.
func (l *ledger) admitUser(ctx context.Context, user string) error {
	l.subjects = slices.Insert(l.subjects, 0, limitedSubject{id: UserSubject(l.key.Account, user), limits: &l.key.PerUser})
	return l.admitSubjects(ctx, l.subjects[:1])
}

// admitSubjects takes the slots, and one request from the bucket of each of subjects. If it
// returns an error, it took no request; slots.release gives the slots back.
func (l *ledger) admitSubjects(ctx context.Context, subjects []limitedSubject) error {
	if wanted := concurrentSlots(subjects); len(wanted) > 0 {
		if err := l.acquireSlots(ctx, wanted); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(subjects, func(s limitedSubject) bool { return s.limits.Requests.N != 0 }) {
		return nil
	}
	if err := l.take(ctx, l.requestDraws(subjects, 1)); err != nil {
		return err
	}
	l.refundable = true
	for i := range subjects {
		subjects[i].admitted = true
	}
	return nil
}

// requestDraws returns the draws that take a number of requests from the bucket of each of
// subjects and read its tokens. They may be in the storage of the reservation.
func (l *ledger) requestDraws(subjects []limitedSubject, requests int64) []BucketAmount {
	draws := l.reservation.newDraws(2 * len(subjects))
	for i := range subjects {
		s := &subjects[i]
		bucket, rate := requestLimit(s.limits, l.op.drawsTokenCounts)
		draws = appendDraw(draws, s.id, bucket, rate, requests)
		draws = appendDraw(draws, s.id, BucketTokens, s.limits.Tokens, 0)
	}
	return draws
}

// requestLimit returns the bucket that admit takes one request from, and its rate.
func requestLimit(l *Limits, countsTokens bool) (bucket string, r Rate) {
	if countsTokens {
		return BucketTokenCounts, l.tokenCountRate()
	}
	return BucketRequests, l.Requests
}

// concurrentSlots returns the slots for Limits.Concurrent of subjects.
func concurrentSlots(subjects []limitedSubject) (slots []SlotAmount) {
	for i := range subjects {
		if limit := subjects[i].limits.Concurrent; limit != 0 {
			slots = append(slots, SlotAmount{Subject: subjects[i].id, Name: SlotConcurrent, Amount: 1, Limit: int64(limit)})
		}
	}
	return slots
}

// acquireSlots takes the wanted slots, or returns an error if one of them is full.
func (l *ledger) acquireSlots(ctx context.Context, wanted []SlotAmount) error {
	acquire := l.localSlots.Acquire
	if c, ok := LimiterAs[ConcurrencyLimiter](l.limiter); ok {
		acquire = c.Acquire
	}
	release, full, err := acquire(ctx, wanted...)
	if err == nil && release == nil && (full < 0 || full >= len(wanted)) {
		err = fmt.Errorf("llmhttp: the Limiter refused slot %d of %d", full, len(wanted))
	}
	if err != nil {
		return storeError(ClassLimiter, err, messageLimits)
	}
	if release == nil {
		l.refused = LimitRefusal{wanted[full].Subject, SlotConcurrent}
		return errConcurrent(&wanted[full])
	}
	l.slots.add(l.log, release)
	return nil
}

// reserve reserves what the request is expected to use, from the quota and all
// buckets of tokens or from none. A second call, with a better estimate, takes from the
// buckets what the first one has not reserved. record is that of the request, as far as it is
// known.
func (l *ledger) reserve(ctx context.Context, record *UsageRecord, e estimate) error {
	l.expected = e
	tokens := max(e.tokens, l.reservation.tokens)
	if s, burst := tooSmall(l.subjects, tokens); s != nil {
		l.refused = LimitRefusal{s.id, BucketTokens}
		return errRequestTooLarge(s.id, burst, tokens)
	}
	if err := l.reserveQuota(ctx, record); err != nil {
		return err
	}
	draws := tokenDraws(l.reservation.newDraws(len(l.subjects)), l.subjects, int64(tokens-l.reservation.tokens))
	if len(draws) == 0 {
		return nil
	}
	if err := l.take(ctx, draws); err != nil {
		return err
	}
	l.reservation.draws, l.reservation.tokens = draws, tokens
	return nil
}

// tooSmall returns the first of subjects whose bucket of tokens can never hold that many, and
// the burst of the bucket, or nil if there is none.
func tooSmall(subjects []limitedSubject, tokens int) (_ *limitedSubject, burst int) {
	for i := range subjects {
		r := subjects[i].limits.Tokens
		if burst := r.WithDefaults().Burst; r.N != 0 && tokens > burst {
			return &subjects[i], burst
		}
	}
	return nil, 0
}

// tokenDraws appends the draws that take cost from all buckets of tokens.
func tokenDraws(draws []BucketAmount, subjects []limitedSubject, cost int64) []BucketAmount {
	for i := range subjects {
		draws = appendDraw(draws, subjects[i].id, BucketTokens, subjects[i].limits.Tokens, cost)
	}
	return draws
}

// appendDraw appends a BucketAmount if its Rate is a limit.
func appendDraw(draws []BucketAmount, s SubjectID, bucket string, r Rate, cost int64) []BucketAmount {
	if r.N == 0 {
		return draws
	}
	return append(draws, BucketAmount{Subject: s, Bucket: bucket, Rate: r, Amount: cost})
}

// take takes draws from the Limiter. If one of them has to wait, it takes none and returns
// the error for the client.
func (l *ledger) take(ctx context.Context, draws []BucketAmount) error {
	l.asked = true
	levels, err := l.limiter.Take(ctx, draws...)
	if err == nil && len(levels) != len(draws) {
		err = fmt.Errorf("llmhttp: the Limiter returned %d levels for %d draws", len(levels), len(draws))
	}
	if err != nil {
		return storeError(ClassLimiter, err, messageLimits)
	}
	noteLevels(l.subjects, draws, levels)
	refused, err := refusal(draws, levels)
	if err != nil {
		l.refused = refused
	}
	return err
}

// refusal returns which limit has to be waited for longest and the error for it, or nil if
// none has to.
func refusal(draws []BucketAmount, levels []BucketLevel) (refused LimitRefusal, err error) {
	var longest time.Duration
	for i, level := range levels {
		if wait := level.RetryAfter; wait > longest {
			longest = wait
			refused, err = LimitRefusal{draws[i].Subject, draws[i].Bucket}, errRateLimit(draws[i], level)
		}
	}
	return refused, err
}

// takeLoad takes one request from BucketRequests for a count of tokens that is about to load
// something. From then on the request is not refunded.
func (l *ledger) takeLoad(ctx context.Context) error {
	draws := l.reservation.newDraws(len(l.subjects))
	for i := range l.subjects {
		draws = appendDraw(draws, l.subjects[i].id, BucketRequests, l.subjects[i].limits.Requests, 1)
	}
	if len(draws) > 0 {
		if err := l.take(ctx, draws); err != nil {
			return err
		}
	}
	l.commit()
	return nil
}

// commit makes what admit took final: the Backend is about to be called, or the request is
// about to cost as much.
func (l *ledger) commit() { l.refundable = false }

// commitCostly is commit for a request that does costly work before the Backend is called: if it
// fails before that, it gets nothing back from the rates of tokens either.
func (l *ledger) commitCostly() {
	l.commit()
	l.costly = true
}

// refund returns what admit took from the buckets of requests, if the request has failed
// before commit. ctx has the values for the Limiter.
func (l *ledger) refund(ctx context.Context) {
	if !l.refundable {
		return
	}
	l.refundable = false
	var draws []BucketAmount
	for i := range l.subjects {
		s := &l.subjects[i]
		if !s.admitted {
			continue
		}
		bucket, r := requestLimit(s.limits, l.op.drawsTokenCounts)
		draws = appendDraw(draws, s.id, bucket, r, -1)
		s.states.requests.refund(r)
	}
	until, cancel := settleContext(ctx)
	defer cancel()
	l.log.callStore(ClassLimiter, "limits not settled", func() error { return l.limiter.Adjust(until, draws...) })
}

// refund adds a request that is given back to a bucket of the rate r.
func (s *limitState) refund(r Rate) {
	r = r.WithDefaults()
	if s.info.Remaining < s.info.Limit {
		s.info.Remaining++
	}
	s.info.ResetAfter = max(s.info.ResetAfter-r.Per/time.Duration(max(r.N, 1)), 0)
}

// readLevels asks the Limiter for the states of the limits if it was not asked yet: the headers
// of every reply to a key with limits report them.
func (l *ledger) readLevels(ctx context.Context) {
	if len(l.subjects) == 0 || l.asked {
		return
	}
	if draws := l.requestDraws(l.subjects, 0); len(draws) > 0 {
		l.log.callAndLog("limits are not known", func() error { return l.take(ctx, draws) })
	}
}

// noteLevels stores the levels of the buckets of requests and tokens in subjects.
func noteLevels(subjects []limitedSubject, draws []BucketAmount, levels []BucketLevel) {
	for i, level := range levels {
		s := slices.IndexFunc(subjects, func(s limitedSubject) bool { return s.id == draws[i].Subject })
		if s < 0 || level.Unknown {
			continue
		}
		info := LimitInfo{Limit: int64(draws[i].Rate.WithDefaults().Burst), Remaining: level.Remaining, ResetAfter: level.ResetAfter}
		switch draws[i].Bucket {
		case BucketRequests, BucketTokenCounts:
			subjects[s].states.requests = limitState{true, info}
		case BucketTokens:
			subjects[s].states.tokens = limitState{true, info}
		}
	}
}

// limits returns the last known states of the limits on requests and tokens: of each, that of
// the subject which is nearest to its end.
func (l *ledger) limits() limitStates { return nearestLimits(l.subjects) }

// nearestLimits returns, of each limit, the state of the subject that is nearest to its end.
func nearestLimits(subjects []limitedSubject) (l limitStates) {
	for i := range subjects {
		l.requests = nearest(l.requests, subjects[i].states.requests)
		l.tokens = nearest(l.tokens, subjects[i].states.tokens)
	}
	return l
}

// nearest returns which of two limits is nearer to its end: has less of its Limit remaining,
// or resets later if that is equal. One that is not known is that of a subject without it.
func nearest(a, b limitState) limitState {
	switch {
	case !b.known:
		return a
	case !a.known:
		return b
	}
	left, best := b.info.share(), a.info.share()
	if left < best || left == best && b.info.ResetAfter > a.info.ResetAfter {
		return b
	}
	return a
}

// share returns which fraction of the Limit remains.
func (l *LimitInfo) share() float64 { return float64(l.Remaining) / float64(max(l.Limit, 1)) }

// settle finds out what was used, corrects the reservation to it and records it. A request

// heldSlots are the places of a request among those that Limits.Concurrent lets its subjects have
// in progress. The zero heldSlots are none.
type heldSlots struct {
	log  *requestLog
	give func() // gives the slots back; nil if there are none
}

// add adds slots that give gives back.
func (s *heldSlots) add(log *requestLog, give func()) {
	s.log = log
	before := s.give
	if before == nil {
		s.give = give
		return
	}
	s.give = func() {
		defer before() // also if give panics
		give()
	}
}

// release gives the slots back, once.
func (s *heldSlots) release() {
	give := s.give
	if give == nil {
		return
	}
	s.give = nil
	s.log.callAndLog("concurrent request not released", func() error { give(); return nil })
}

// releaser returns release, or nil if there is nothing to give back.
func (s *heldSlots) releaser() func() {
	if s.give == nil {
		return nil
	}
	return s.release
}
