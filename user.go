package llmhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
)

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
