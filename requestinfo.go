// What a decoded request tells Observers: its RequestInfo.

package llmhttp

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"
)

// A description is what a decoded request tells for its RequestInfo.
type description struct {
	stream bool
	params RequestParams

	floats    [4]float64 // the storage of parameters
	numFloats int
}

// float returns a copy of n in d. It returns nil if n is nil.
func (d *description) float(n *float64) *float64 {
	if n == nil {
		return nil
	}
	f := &d.floats[d.numFloats]
	*f = *n
	d.numFloats++
	return f
}

// copyParams returns the parameters without a reference to d.
func (d *description) copyParams() RequestParams { return d.params.clone() }

// clone returns p without a reference to anything that can change.
func (p RequestParams) clone() RequestParams {
	p.TopK, p.Seed, p.Stop = clone(p.TopK), clone(p.Seed), slices.Clone(p.Stop)
	for _, n := range []**float64{&p.Temperature, &p.TopP, &p.PresencePenalty, &p.FrequencyPenalty} {
		*n = clone(*n)
	}
	return p
}

// A requestInfo has the RequestInfo of a request. If there is no Observer, it is built when
// RequestInfoFrom is first called, and does not keep the request in memory.
type requestInfo struct {
	conversation string // that SetConversation has set
	record       *UsageRecord
	arrived      *time.Time                  // with a monotonic clock
	own          description                 // unless an Observer has it
	isSet        atomic.Bool                 // the fields above are final
	named        bool                        // SetModelName has set request.requested; here it needs no more memory
	public       atomic.Pointer[RequestInfo] // what RequestInfoFrom returns
}

// An observedInfo is the RequestInfo that an Observer gets, with its storage.
type observedInfo struct {
	description description
	info        RequestInfo
}

// set sets the RequestInfo of a request with the given record that has arrived at a time, and for which
// the Backend is about to be called. The request is described in observed, or in i.own if that is nil.
func (i *requestInfo) set(record *UsageRecord, arrived *time.Time, observed *observedInfo) {
	i.record, i.arrived = record, arrived
	if observed == nil {
		i.isSet.Store(true)
		return
	}
	observed.info = i.build(observed.description.stream, observed.description.params)
	i.public.Store(&observed.info)
}

// build returns the RequestInfo of a request with these parameters.
func (i *requestInfo) build(stream bool, p RequestParams) RequestInfo {
	r := i.record
	return RequestInfo{
		ID: r.RequestID, Account: r.Account, KeyID: r.KeyID, Protocol: r.Protocol, Operation: r.Operation, Model: r.Model,
		Conversation: i.conversation, Stream: stream, Arrived: i.arrived.Round(0), Params: p,
	}
}

// load implements RequestInfoFrom for this request.
func (i *requestInfo) load() *RequestInfo {
	if info := i.public.Load(); info != nil || !i.isSet.Load() {
		return info
	}
	i.public.CompareAndSwap(nil, new(i.build(i.own.stream, i.own.copyParams())))
	return i.public.Load()
}

// clone returns a copy, because the Backend may modify its request.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// decodeNumber returns the number in raw, or nil.
func decodeNumber[T int | float64](raw json.RawMessage) *T {
	if raw == nil {
		return nil
	}
	var n *T
	if json.Unmarshal(raw, &n) != nil {
		return nil
	}
	return n
}
