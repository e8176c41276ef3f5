package llmhttp

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"
)

// A describer is a decoded request for an operation that calls a model.
type describer interface {
	// describe sets the fields of d.info that the request knows. The Backend may change
	// the request afterwards, so d must not refer to its parameters.
	describe(d *description)
}

// A requestInfo has the RequestInfo of a request. If no Observer needs it, it is allocated
// when RequestInfoFrom is first called (TestAllocs_PerRequest).
type requestInfo struct {
	conversation string // that SetConversation has set

	// public is what RequestInfoFrom returns. While it is &own.info, RequestInfoFrom
	// replaces it by a copy, which does not keep the request in memory.
	public atomic.Pointer[RequestInfo]
	own    description
}

// set sets the RequestInfo of a request with the given record that has arrived at a time, and
// for which the Backend is about to be called with req. d is its storage: own, or that of an
// Observer, which gets it at once.
func (i *requestInfo) set(record *UsageRecord, arrived time.Time, req describer, d *description) {
	info := &d.info
	info.ID, info.Account, info.KeyID, info.Model = record.RequestID, record.Account, record.KeyID, record.Model
	info.Protocol, info.Operation, info.Arrived = record.Protocol, record.Operation, arrived.Round(0)
	info.Conversation, info.Params.Choices = i.conversation, 1
	req.describe(d)
	if d != &i.own {
		d.complete(info)
	}
	i.public.Store(info)
}

// load implements RequestInfoFrom for this request.
func (i *requestInfo) load() *RequestInfo {
	info := i.public.Load()
	if info != &i.own.info { // also if it is nil
		return info
	}
	i.public.CompareAndSwap(info, i.own.copy())
	return i.public.Load()
}

// A description is a RequestInfo with the storage of parameters that it points to.
type description struct {
	info RequestInfo

	floats    [4]float64
	numFloats int
	texts     [maxStops]string

	// Members without a field, which complete decodes.
	topK, seed json.RawMessage
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

// list returns a copy of texts, in d if it has room for them.
func (d *description) list(texts []string) []string {
	if texts == nil {
		return nil
	}
	return append(d.texts[:0], texts...)
}

// complete sets the parameters that are members without a field.
func (d *description) complete(info *RequestInfo) {
	info.Params.TopK, info.Params.Seed = decodeNumber[float64](d.topK), decodeNumber[int](d.seed)
}

// copy returns a complete copy of the RequestInfo that does not refer to d.
func (d *description) copy() *RequestInfo {
	info := d.info
	p := &info.Params
	for _, n := range []**float64{&p.Temperature, &p.TopP, &p.PresencePenalty, &p.FrequencyPenalty} {
		*n = clone(*n)
	}
	p.Stop = slices.Clone(p.Stop)
	d.complete(&info)
	return &info
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
	var n *T
	if raw == nil || json.Unmarshal(raw, &n) != nil {
		return nil
	}
	return n
}
