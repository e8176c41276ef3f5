// Package panics keeps panics in code of the host from ending the process: they become errors, and a
// text.
package panics

import (
	"fmt"
	"runtime/debug"
)

// An Error is a recovered panic. It wraps the value if that is an error.
type Error struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// New returns an Error with the stack of its caller, which has recovered the panic with the value v.
func New(v any) *Error { return &Error{v, debug.Stack()} }

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Text returns the text of err. A panic in its Error method is part of the text.
func Text(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T whose Error method panicked: %v", err, p)
		}
	}()
	return err.Error()
}
