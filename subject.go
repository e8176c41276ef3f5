// SubjectID and Subject: whose limits count. The end user whom a client names.

package llmhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// Validate returns an error that names the field unless s has the form of a SubjectID.
// [Key.Validate] calls it for the subjects of a key. Programs call it when they make subjects of
// their own for a [Limiter], a [UsageRecord] or a [UsageQuery], which take other kinds for kinds
// of which they know nothing.
func (s SubjectID) Validate() error { return s.check("SubjectID") }

// check returns an error that names a field of s, which has the given name, unless s has the
// form of a SubjectID.
func (s SubjectID) check(name string) error {
	switch {
	case s.Kind == "" || len(s.Kind) > maxSubjectKind || strings.ContainsFunc(s.Kind, isNoKindChar):
		return fmt.Errorf("%s.Kind: must have 1 to %d lower-case letters, digits, hyphens and underscores", name, maxSubjectKind)
	case s.ID == "" || len(s.ID) > maxSubjectID || !isPlainText(s.ID):
		return fmt.Errorf("%s.ID: must be text of 1 to %d bytes without control characters", name, maxSubjectID)
	}
	return nil
}

// A Subject is what the use of several keys counts toward together, and its limits. Its ID is
// that of the key's account, of [KindAccount], or one of a kind that the host defines, such as
// "team". A key has at most 8 beside that of its account, with distinct IDs, and none of [KindKey] or [KindUser]. The ID of
// a kind that the host defines has 1 to 512 bytes of UTF-8 without control characters.
//
// The rates and Concurrent hold for all requests that name the SubjectID, of any account. A
// Quota counts what the keys of the same account have used for the subject. The Limits should
// be the same in all keys that name it: a rate is that of the latest request, and requests
// in progress of another Quota are not seen. Of several MaxCompletionTokens, the smallest
// holds, and a negative one permits none.
//
// All subjects of a request must allow it. The x-ratelimit headers tell, of each rate, the subject
// that is nearest to its end. A refusal names the kind of the subject, unless it is the key, and takes
// nothing from the others.
//
// A [UsageRecord] lists the subjects of the kinds that the host defines, whether they have
// limits or not.
type Subject struct {
	ID     SubjectID
	Limits Limits // the zero Limits set none
}

// The bounds of the subjects of a key.
const (
	maxSubjects    = 8 // beside that of the account, which stores add
	maxSubjectKind = 32
	maxSubjectID   = 512
)

// checkSubjects returns an error that names the first of the subjects of a key of account that
// is not one.
func checkSubjects(subjects []Subject, account string) error {
	count := 0
	for i := range subjects {
		if subjects[i].ID.Kind != KindAccount {
			count++
		}
	}
	if count > maxSubjects {
		return fmt.Errorf("Key.Subjects: has %d elements beside that of the account; the maximum is %d", count, maxSubjects)
	}
	for i := range subjects {
		if err := checkSubject(subjects[i].ID, account); err != nil {
			return fmt.Errorf("Key.Subjects[%d].%w", i, err)
		}
		if slices.ContainsFunc(subjects[:i], func(s Subject) bool { return s.ID == subjects[i].ID }) {
			return fmt.Errorf("Key.Subjects[%d].ID: the %s %q is listed twice", i, subjects[i].ID.Kind, subjects[i].ID.ID)
		}
	}
	return nil
}

// checkSubject returns an error that names a field of Subject unless id may be that of a subject
// of a key of account.
func checkSubject(id SubjectID, account string) error {
	switch {
	case id.Kind == KindAccount:
		if id.ID == "" || id.ID != account {
			return fmt.Errorf("ID.ID: is %q, and the account of the key is %q", id.ID, account)
		}
		return nil
	case id.Kind == KindKey:
		return fmt.Errorf("ID.Kind: is %q; the limits of the key are Key.Limits", id.Kind)
	case id.Kind == KindUser:
		return fmt.Errorf("ID.Kind: is %q; the limits of end users are Key.PerUser", id.Kind)
	}
	return id.check("ID")
}

// isNoKindChar reports whether c cannot be in the Kind of a subject.
func isNoKindChar(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// recordedSubjects returns those of subjects that a UsageRecord lists: all but the account,
// which it has anyway.
func recordedSubjects(subjects []Subject) (ids []SubjectID) {
	for i := range subjects {
		if id := subjects[i].ID; id.Kind != KindAccount {
			ids = append(ids, id)
		}
	}
	return ids
}

// UserSubject returns the subject whose rates and Concurrent are those of an end user: see
// Key.PerUser. The same name is another user in each account. user is that of the
// [UsageRecord], and may be empty.
func UserSubject(account, user string) SubjectID {
	return SubjectID{KindUser, url.PathEscape(account) + "/" + user} // an account has no slash then
}

// HashUser returns a function for Options.User that returns a hash of the name, so that names do
// not reach records, limits and logs. It is an HMAC with SHA-256 of salt, in hexadecimal. It can
// only be compared with others of the same salt, which should be secret and random, because
// the names of people can be guessed. The hash of "" is "".
func HashUser(salt string) func(r *http.Request, named string) (string, error) {
	key := []byte(salt)
	return func(_ *http.Request, named string) (string, error) {
		if named == "" {
			return "", nil
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(named))
		return hex.EncodeToString(mac.Sum(nil)), nil
	}
}

// maxUser is the maximum length of the name of an end user in bytes.
const maxUser = 128

// recordedUser returns the form in which the name of an end user is recorded and limited: the
// name itself, or a hash if it is too long, or has control characters, which some stores do
// not take.
func recordedUser(name string) string {
	if len(name) <= maxUser && isPlainText(name) {
		return name
	}
	return "sha256:" + HashSecret(name)
}
