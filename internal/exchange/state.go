package exchange

// A state is how far the reply to a request has got.
type state int

const (
	// stateReading: the request is being read and admitted. Only the goroutine of ServeHTTP
	// may reply.
	stateReading state = iota

	// stateWaiting: somebody was called for the request and nothing was written. The idle
	// timer and Interrupt may reply while the call still runs.
	stateWaiting

	// stateStreaming: the header of a stream was written. Other goroutines may keep it alive,
	// or end it with a failure.
	stateStreaming

	// stateDone: the reply is complete or has failed, or ServeHTTP is about to
	// return. Nothing more is written.
	stateDone
)

// setState is the only place where the state changes.
func (x *Exchange) setState(s state) { x.state = s }

// isInterruptible reports whether another goroutine than that of ServeHTTP may reply.
func (x *Exchange) isInterruptible() bool {
	return x.state == stateWaiting || x.state == stateStreaming
}
