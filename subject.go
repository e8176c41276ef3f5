package llmhttp

import (
	"errors"
	"strings"
)

// A SubjectID names one of those whose use is limited and recorded: the key of a request,
// its account, the end user behind it, or a subject of another kind that the host defines,
// such as a team. IDs of different kinds have nothing in common: account "a" is not key "a".
type SubjectID struct {
	Kind string // one to 32 lower-case letters, digits, hyphens and underscores
	ID   string // UTF-8 text that is not empty; unique within its kind
}

// The kinds of subjects that a [Handler] knows.
const (
	KindKey     = "key"
	KindAccount = "account"
	KindUser    = "user" // an end user, whom the client names
)

const maxSubjectKind = 32

// Validate returns an error that names the field unless s has the form of a SubjectID.
// Programs call it when they make subjects of their own for a [Limiter], a [UsageRecord] or a
// [UsageQuery]. These do not check it again for each request: they take other kinds for kinds
// of which they know nothing.
func (s SubjectID) Validate() error {
	switch {
	case s.Kind == "" || len(s.Kind) > maxSubjectKind || strings.Trim(s.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return errors.New("SubjectID.Kind: must be 1 to 32 lower-case letters, digits, hyphens and underscores")
	case s.ID == "" || !isPlainText(s.ID):
		return errors.New("SubjectID.ID: must be text without control characters that is not empty")
	}
	return nil
}
