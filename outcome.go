// What has happened to a request: its error with its class, whether the client left, what the Backend
// yielded. An error has its class from where it arises: classify wraps it there, and the first class
// stays.

package llmhttp

import (
	"encoding/json"
	"errors"

	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// An outcome is what has happened to a request: why it failed, and what the Backend did.
type outcome struct {
	err         error      // why the request failed; nil if it did not
	class       ErrorClass // of err; empty if that is nil
	clientLeft  bool       // the client left before it had the whole reply
	errStatus   int        // the HTTP status of err, whether it was sent or not; zero if err is nil
	loaded      int        // bytes: see CountLoaded
	called      bool       // the Backend was called for an operation that calls a model
	notSent     bool       // the error of the Backend wraps ErrNotSent
	chunks      chunkStats
	reported    *llm.Usage      // the usage that the Backend has reported; nil if it has not
	unknown     bool            // a server has reported a usage that is not known
	calls       *callSum        // what the calls of StartCall have used; nil if there was none
	target      string          // of the last StartTry
	labels      []Label         // of AddLabel
	servedModel string          // as the Backend has set it; any text
	serviceTier json.RawMessage // as the Backend has set it; nil if it has not
	units       *Units          // of the reply of the Backend, besides tokens; nil if there is nothing else
	estimated   bool            // some of units are an estimate
	output      *tokens.Counter // the texts that the Backend yielded
}

// A classedError is an error with its class, which it gets where it arises.
type classedError struct {
	class ErrorClass
	err   error
}

func (e *classedError) Error() string { return e.err.Error() }
func (e *classedError) Unwrap() error { return e.err }

// classify gives err a class, unless it has one. Why the client left or the server shuts down
// needs none.
func classify(class ErrorClass, err error) error {
	if err == nil || class == "" || err == exchange.ErrClientLeft || err == errShutdown || classOf(err) != "" {
		return err
	}
	return &classedError{class, err}
}

// classOf returns the class that err carries, or "".
func classOf(err error) ErrorClass {
	defer func() { _ = recover() }() // a method of err, such as Unwrap, panicked
	if e, ok := errors.AsType[*classedError](err); ok {
		return e.class
	}
	return ""
}

// unclassified returns err without its class.
func unclassified(err error) error {
	if e, ok := err.(*classedError); ok {
		return e.err
	}
	return err
}

// errorStatus returns the HTTP status of an error, or zero if there is none.
func (c *credential) errorStatus(err error) int {
	if err == nil {
		return 0
	}
	return completeError(c.r, err).Status
}

// errorClass returns the class of the error that a request failed with. Errors whose status
// tells their class need not carry one.
func (c *credential) errorClass(result exchange.Result) ErrorClass {
	switch {
	case result.Err == nil:
		return ""
	case result.ClientLeft:
		return ClassCanceled
	case result.Err == errShutdown:
		return ClassShutdown
	}
	failing := classOf(result.Err)
	switch {
	case isResponseStoreError(result.Err):
		failing = ClassResponseStore
	case failing == "":
		failing = ClassInternal
	}
	return classifyStatus(completeError(c.r, result.Err).Status, failing)
}

// silenceOf returns the error of a request that waits too long for a call whose failures have
// the given class.
func silenceOf(class ErrorClass) error {
	switch class {
	case ClassBackend:
		return errSilent
	case ClassUsageStore:
		return errUsageStoreSilent
	}
	return errHostSilent
}

var (
	errUsageStoreSilent = &classedError{ClassUsageStore, errStoreSilent}
	errHostSilent       = &classedError{ClassInternal, errStoreSilent}
)
