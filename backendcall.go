package llmhttp

import (
	"context"
	"time"
)

// beginCall must be called before each call to the Backend, or to anything else to which
// Options.Timeout applies. class is that of its failures. From then on other goroutines may end
// the request, the request that admit took is not refunded, and the idle timer runs. It
// returns the time.
func (q *request) beginCall(class ErrorClass) (time.Time, error) {
	now, err := q.client.BeginCall(silenceOf(class))
	if err != nil {
		return now, err
	}
	q.usage.setOpen(true)
	q.ledger.commit()
	return now, nil
}

// callReturned is called when what beginCall was called for has returned.
func (q *request) callReturned() {
	q.usage.setOpen(false)
	q.client.CallReturned()
}

// callUnrecorded calls a function of the host that uses no model, such as ListModels of the
// Backend. There is no record of the call, and the Observer is not told. Options.Timeout
// applies to it, and class is that of its failures.
func callUnrecorded[T any](q *request, class ErrorClass, call func(ctx context.Context) (T, error)) (v T, err error) {
	err = q.inCall(class, func() error {
		if _, err := q.beginCall(class); err != nil {
			return err
		}
		defer q.callReturned() // also if call panics
		if v, err = call(q.client.Context()); err != nil {
			return q.client.CauseOr(err)
		}
		return nil
	})
	return v, err
}

// A backendCall is what a call of the Backend for an operation that calls a model has told
// besides the chunks of a chat.
type backendCall struct {
	began     time.Time // zero if it was not called
	notSent   bool      // its error wraps ErrNotSent
	estimated bool      // some of units are an estimate
	units     *Units    // of the reply, besides tokens; nil if there is nothing else
	model     string    // that Used tells; may be empty
}

// description returns what the request is described in before notifyStarted is called. The Backend may
// change the request afterwards, so the description must not refer to its parameters.
func (q *request) description() *description {
	if observed := q.observer.infoStorage(); observed != nil {
		return &observed.description
	}
	return &q.info.own
}

// notifyStarted is called before the Backend is called, after beginCall at a time. It
// sets the RequestInfo and tells the Observer. From then on the request is recorded.
func (q *request) notifyStarted(began time.Time) {
	q.info.set(q.record, &q.arrived, q.observer.infoStorage())
	q.backendCtx = q.observer.notifyStarted(q.client.Context())
	q.backend.began = began
}
