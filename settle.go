// Settles a request: finds out what it used, corrects what was reserved, and records it.

package llmhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// settle finds out what was used, corrects the reservation to it, completes the record of the
// request and stores it. A request that succeeds is settled before its reply ends, because
// the client may ask for its usage next. Others are settled at their end. Calls after the first
// only give back a reservation of the quota that is left, and so does a call for a request that
// has neither reserved nor used anything. ctx has the values for the Limiter and the store.
func (l *ledger) settle(ctx context.Context, record *storedRecord, o *outcome) {
	r, refused := record.get(), !o.called
	if l.settled || refused && o.loaded == 0 && len(l.reservation.draws) == 0 {
		l.releaseQuota()
		return
	}
	l.settled = true
	billable := o.called && !failedAsNotFound(o) || refused && o.loaded > 0
	l.describe(r, o)
	until, cancel := settleContext(ctx)
	defer cancel()
	runAll(
		func() { l.log.callAndLog("usage not counted", func() error { l.setUsage(r, o, billable); return nil }) },
		func() { l.log.callAndLog("usage not priced", func() error { return l.setCost(r, o, billable) }) },
		func() {
			l.log.callStore(ClassLimiter, "limits not settled", func() error { return l.settleTokens(until, o.called) })
		},
		func() { l.spendQuota(r, billable) },
		func() {
			l.log.callAndLog("usage not recorded", func() error { return l.recordUsage(ctx, until, record, billable) })
		},
		func() { l.endQuota(r, billable) },
	)
}

// A storedRecord is the record of a request, as an argument of UsageStore.Record (budget:
// allocations of a whole request).
type storedRecord [1]UsageRecord

func (r *storedRecord) get() *UsageRecord { return &r[0] }

// describe sets the fields of the record that tell who served the request and whether it failed, and
// its labels.
func (l *ledger) describe(r *UsageRecord, o *outcome) {
	r.Target, r.ErrorClass = o.target, o.class
	r.ServedModel = recordedName(o.servedModel)
	if o.serviceTier != nil {
		r.ServiceTier = decodeName(o.serviceTier)
	}
	var err error
	if r.Labels, err = joinLabels(l.key.Labels, o.labels); err != nil {
		l.log.print(slog.LevelError, "labels of the key not recorded", err)
	}
}

// decodeName returns the recordedName that raw is as JSON, or "" if it is no string.
func decodeName(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) != nil {
		return ""
	}
	return recordedName(name)
}

// recordedName returns a name that the Backend has set, or "" if it is too long for a record
// or has control characters, which some stores do not take.
func recordedName(s string) string {
	if len(s) > maxModelID || !isPlainText(s) {
		return ""
	}
	return s
}

// joinLabels returns own, the labels of a key, and added. The error tells which of own are left
// out.
func joinLabels(own, added []Label) (labels []Label, dropped error) {
	if len(added) == 0 && ValidateLabels(own) == nil {
		return own, nil
	}
	for _, l := range own {
		if slices.ContainsFunc(added, func(other Label) bool { return other.Name == l.Name }) {
			continue
		}
		err := checkLabel(labels, l)
		if err == nil && len(labels)+len(added) >= maxLabels {
			err = fmt.Errorf("llmhttp: there are more than %d labels with those of AddLabel", maxLabels)
		}
		if err != nil {
			dropped = err
			continue
		}
		labels = append(labels, l)
	}
	return append(labels, added...), dropped
}

// settleContext returns a context with the values of ctx. It is not cancelled when the client
// leaves, but ends after settleGrace, or when cancel is called.
func settleContext(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
}

// settleTokens takes the difference between the tokens used and those reserved. A costly
// request that did not reach the Backend gets nothing back from the rates of tokens.
func (l *ledger) settleTokens(ctx context.Context, called bool) error {
	difference, draws := l.usage.TotalTokens-l.reservation.tokens, l.reservation.draws
	if len(draws) == 0 || difference == 0 || l.costly && !called && difference < 0 {
		return nil
	}
	for i := range draws {
		draws[i].Amount = int64(difference)
	}
	return l.limiter.Adjust(ctx, draws...)
}

// recordUsage records the usage of a billable request. until is the context for that, unless it
// has ended.
func (l *ledger) recordUsage(ctx, until context.Context, record *storedRecord, billable bool) error {
	if l.store == nil || !billable {
		return nil
	}
	if until.Err() != nil { // a Limiter that hangs does not take the store's time
		var cancel context.CancelFunc
		until, cancel = settleContext(ctx)
		defer cancel()
	}
	l.recordErr = errNotRecorded // unless Record returns
	l.recordErr = l.store.Record(until, record[:]...)
	return l.recordErr
}

// setCost sets what a billable request costs. One that has used something and has no price costs what
// was reserved for it, or what a part of it costs if that is more: a quota in money is not exceeded by
// what cannot be priced.
func (l *ledger) setCost(r *UsageRecord, o *outcome, billable bool) error {
	if l.price == nil || !billable {
		return nil
	}
	r.Unpriced, l.priceErr = true, errNotPriced // unless Price returns
	if !r.Units.IsZero() && l.prices != nil {
		r.Cost = l.prices.reserved
	}
	if o.calls != nil {
		r.Cost = largerCost(r.Cost, o.calls.cost)
	}
	cost, err := l.priceOf(r, o.calls)
	if l.uncounted && (err != nil || cost.Total() == 0) { // tokens may be what has a price
		usage, before := l.usage, *r
		units, _ := l.units(o)
		l.estimateTokens(r, o, units)
		l.setUnits(r, o, units)
		if other, otherErr := l.priceOf(r, o.calls); otherErr == nil && other.Total() != 0 {
			cost, err = other, nil
		} else {
			l.usage, *r = usage, before
		}
	}
	l.priceErr = err
	if err != nil {
		r.Cost = largerCost(r.Cost, cost)
		return err
	}
	r.Cost, r.Unpriced = cost, false
	return nil
}

func largerCost(a, b Cost) Cost {
	if b.Total() > a.Total() {
		return b
	}
	return a
}

// priceOf returns what the calls of StartCall cost, which may be nil, and what Options.Price returns for
// what r has used besides. If one of them has no price, the Cost is that of the others.
func (l *ledger) priceOf(r *UsageRecord, calls *callSum) (Cost, error) {
	priced := l.copyToPrice(r)
	priced.Cost, priced.Unpriced = Cost{}, false
	var sum Cost
	var unpriced error
	if calls != nil {
		sum, unpriced = calls.cost, calls.err
		priced.Units = r.Units.minus(UnitsOf(calls.usage))
	}
	if calls == nil || !priced.Units.IsZero() {
		cost, err := l.price(priced)
		if err != nil {
			return sum, err
		}
		sum.Add(cost)
	}
	return sum, unpriced
}

// priceData is what a request needs that has a price.
type priceData struct {
	record   UsageRecord // what Options.Price gets
	reserved Cost        // what the request was expected to cost; zero without a quota in money
}

// copyToPrice returns a copy of r for a call of Options.Price, which may change it. It is valid until
// the next call.
func (l *ledger) copyToPrice(r *UsageRecord) *UsageRecord {
	if l.prices == nil {
		l.prices = new(priceData)
	}
	l.prices.record = *r
	return &l.prices.record
}

var (
	errNotRecorded = errors.New("llmhttp: UsageStore.Record did not return")
	errNotPriced   = errors.New("llmhttp: Options.Price did not return")
)

// failedAsNotFound reports whether the Backend knows no such model or has no such
// method, so that nothing was used. An agent may have used other models before: it has reported
// that.
func failedAsNotFound(o *outcome) bool {
	return o.err != nil && o.errStatus == http.StatusNotFound && o.chunks.count == 0 && o.units == nil && o.reported == nil &&
		(o.calls == nil || o.calls.usage.TotalTokens == 0)
}

// setUsage sets the usage to what the Backend reported, or to an estimate. A request that failed
// before its reply began used nothing, unless its client has left, which may be why. One that was
// refused after it had loaded something used that. What the client got of a reply that failed, or
// that it has left, is estimated if the Backend has not reported it.
func (l *ledger) setUsage(r *UsageRecord, o *outcome, billable bool) {
	failed := o.err != nil && !o.clientLeft && (o.chunks.count == 0 || o.units == nil && l.op.hasMedia())
	u := &l.usage
	if o.reported != nil && dropInvalidUsage(o.reported) {
		l.log.warn(order.InvalidExtra)
	}
	var units *Units
	if billable {
		units, r.Estimated = l.units(o)
	}
	switch {
	case !billable: // nothing was used
	case !o.called:
		r.Estimated = true
		u.PromptTokens = max(l.expected.prompt, tokens.Estimate(o.loaded))
		u.Bound()
	case o.reported != nil:
		*u = *o.reported
		u.Bound()
		if u.TotalTokens > u.PromptTokens+u.CompletionTokens {
			l.divideTotal(r, o)
		}
		if o.estimated { // there is something better
			exact := *units
			exact.AudioMillis, units, r.Estimated = 0, &exact, false
		}
	case o.calls != nil && !o.calls.unknown: // they are all that is known
	case failed, o.notSent: // nothing was used
	case !o.unknown && (o.err == nil || o.chunks.count == 0) && (l.op.hasMedia() && units != nil || o.units != nil && o.units.AudioMillis > 0):
		l.uncounted = true // a complete reply is charged for by what it has in place of tokens
	default:
		l.estimateTokens(r, o, units)
	}
	l.setUnits(r, o, units)
}

// units returns what the request used besides tokens, or nil, and whether that is an estimate.
func (l *ledger) units(o *outcome) (_ *Units, estimated bool) {
	asked := l.expected.units
	if o.units != nil || asked == nil || !o.clientLeft || o.notSent {
		return o.units, o.estimated
	}
	if l.op.output == OutputAudio { // which nobody got
		asked = new(*asked)
		asked.AudioMillis = 0
	}
	return asked, true // nobody waited for the images to be counted
}

// setUnits sets the Units of r to the usage, which is at least that of the calls of StartCall, and to
// units besides, which may be nil.
func (l *ledger) setUnits(r *UsageRecord, o *outcome, units *Units) {
	u, audioMillis := &l.usage, r.Units.AudioMillis
	if l.op.output == OutputAudio {
		u.CompletionTokensDetails.AudioTokens = u.CompletionTokens
	}
	u.Reconcile()
	if o.calls != nil {
		rest := u.Beyond(&o.calls.usage)
		rest.Add(&o.calls.usage)
		rest.Extra, rest.PromptTokensDetails.Extra, rest.CompletionTokensDetails.Extra =
			u.Extra, u.PromptTokensDetails.Extra, u.CompletionTokensDetails.Extra
		*u = rest
	}
	r.Units = UnitsOf(*u)
	if units != nil {
		r.Units.Add(*units)
	}
	r.Units.AudioMillis = max(r.Units.AudioMillis, audioMillis)
}

// estimateTokens sets the usage to an estimate, and the audio of r to what the client has sent. units
// are those of the request, or nil.
func (l *ledger) estimateTokens(r *UsageRecord, o *outcome, units *Units) {
	u := &l.usage
	r.Estimated = true
	u.PromptTokens, u.CompletionTokens = l.expected.prompt, l.estimateOutput(r, o, units)
	u.Bound()
	if asked := l.expected.units; asked != nil && l.op.output != OutputAudio && (o.units == nil || o.units.AudioMillis == 0) {
		r.Units.AudioMillis = asked.AudioMillis
	}
}

// estimateOutput estimates the tokens of the reply, as far as it was received. units are those of the
// request, or nil.
func (l *ledger) estimateOutput(r *UsageRecord, o *outcome, units *Units) int {
	if units != nil && l.op.hasMedia() {
		return int(min(l.mediaTokens(r, units), math.MaxInt32))
	}
	if o.output == nil {
		return 0
	}
	if l.op.output == OutputReported {
		return 0
	}
	output := *o.output
	return tokens.Estimator{Model: r.Model, Count: l.countTokens}.Output(&output)
}

// mediaTokens estimates the completion tokens of the images or the audio in units, and returns zero
// if replies have neither.
func (l *ledger) mediaTokens(r *UsageRecord, units *Units) int64 {
	switch l.op.output {
	case OutputImages:
		return min(units.Images, math.MaxInt32) * imageTokens(r.ImageSize, r.ImageQuality)
	case OutputAudio:
		return audioTokens(units.AudioMillis)
	}
	return 0
}

// divideTotal adds those tokens of the total that are neither counted in PromptTokens nor in
// CompletionTokens to the one of these that is zero. If both are, the total of a chat is
// divided like the estimate, and the output of images is what the estimate of the prompt
// leaves. If neither is, they are tokens of the completion: xAI counts reasoning only in the
// total (https://docs.x.ai/docs/key-information/consumption-and-rate-limits). Embeddings,
// moderations and rerank have no completion.
func (l *ledger) divideTotal(r *UsageRecord, o *outcome) {
	u, prompt := &l.usage, l.expected.prompt
	rest := u.TotalTokens - u.PromptTokens - u.CompletionTokens
	switch {
	case l.op.output == OutputNone:
		u.PromptTokens += rest
	case u.PromptTokens > 0:
		u.CompletionTokens += rest
	case u.CompletionTokens > 0:
		u.PromptTokens = rest
	case l.op.hasMedia():
		u.PromptTokens = min(prompt, rest)
		u.CompletionTokens = rest - u.PromptTokens
	default:
		u.PromptTokens = rest // unless counting the output panics
		if output := float64(l.estimateOutput(r, o, nil)); output > 0 {
			u.PromptTokens = int(float64(rest) * float64(prompt) / (float64(prompt) + output))
		}
		u.CompletionTokens = rest - u.PromptTokens
	}
}

// settleGrace bounds how long the Limiter and the usage store may take to settle a
// request that is over.
const settleGrace = 10 * time.Second

func dropInvalidUsage(u *llm.Usage) bool {
	return jsonwire.DropInvalid(u.Extra, u.PromptTokensDetails.Extra, u.CompletionTokensDetails.Extra)
}

// audioTokens estimates the tokens of audio that a model has made, as OpenAI counts those of its
// models: one for each 50 ms (https://platform.openai.com/docs/guides/realtime-costs).
func audioTokens(millis int64) int64 { return (millis + 49) / 50 }
