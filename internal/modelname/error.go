package modelname

import (
	"errors"

	"github.com/llmhttp/llmhttp/llm"
)

// RenameError returns err with the model name old replaced by name in the message that the client sees: see
// [Rename]. It does not change err itself.
func RenameError(err error, old, name string) error {
	e, _ := errors.AsType[*llm.Error](err)
	if e == nil {
		return err
	}
	message := Rename(e.Message, old, name)
	if message == e.Message {
		return err
	}
	translated := *e
	translated.Message = message
	if err != error(e) {
		translated.Err = err // keeps what wraps e for the log
	}
	return &translated
}
