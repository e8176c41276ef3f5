// Package passwordhash hashes the passwords of administrators for SignIn of package console:
//
//	hash, err := passwordhash.New(password) // $pbkdf2-sha256$i=600000$SALT$HASH
//	...
//	signIn := &console.SignIn{Admins: map[string]string{"alice": hash}}
//
// Passwords that people choose are hashed with PBKDF2, and random ones of [Generate], which nobody can guess, with
// SHA-256. "llmhttpctl hash-password" prints both kinds. Functions and methods are safe for concurrent use.
package passwordhash

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	// iterations is what OWASP recommends for PBKDF2 with HMAC-SHA-256:
	// https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
	iterations = 600_000

	minIterations, maxIterations = 10_000, 10_000_000

	saltLength = 16

	// generatedLength is that of rand.Text. A shorter password never matches $sha256$HASH: it may be one that a
	// person chose, which SHA-256 does not protect.
	generatedLength = 26

	// minLength and maxLength bound the length of a password in bytes.
	minLength, maxLength = 8, 1024
)

// A Hash is the hash of a password. Create one with [Parse].
type Hash struct {
	iterations int // 0 if the password is a result of Generate
	salt, sum  []byte
}

// Generate returns a random password of at least 128 bits and its hash: text such as $sha256$HASH, which needs
// neither salt nor iterations. As nobody can guess the password, the console's limits of attempts do not hold for
// it, so that attempts of others never lock its administrator out.
func Generate() (password, hash string) {
	password = rand.Text()
	sum := sha256.Sum256([]byte(password))
	return password, "$sha256$" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Generated reports whether h is the hash of a password of [Generate].
func (h *Hash) Generated() bool { return h.iterations == 0 }

// New hashes a password that a person chose, with a random salt. The result is text in the format of PHC strings,
// such as $pbkdf2-sha256$i=600000$SALT$HASH. A password of less than 8 or more than 1024 bytes is an error. The
// work takes some tenths of a second, on purpose.
func New(password string) (string, error) {
	if len(password) < minLength || len(password) > maxLength {
		return "", fmt.Errorf("passwordhash: a password must have %d to %d bytes", minLength, maxLength)
	}
	salt := make([]byte, saltLength)
	rand.Read(salt) // never fails
	sum, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$pbkdf2-sha256$i=%d$%s$%s", iterations, encode(salt), encode(sum)), nil
}

var errMalformed = errors.New("passwordhash: the hash of a password must have the form $pbkdf2-sha256$i=N$SALT$HASH or $sha256$HASH")

// Parse parses a text of [New] or [Generate]. Its errors do not contain the text.
func Parse(text string) (*Hash, error) {
	if encoded, ok := strings.CutPrefix(text, "$sha256$"); ok {
		sum, err := base64.RawStdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(sum) != sha256.Size {
			return nil, errMalformed
		}
		return &Hash{sum: sum}, nil
	}
	fields := strings.Split(text, "$")
	if len(fields) != 5 || fields[0] != "" || fields[1] != "pbkdf2-sha256" {
		return nil, errMalformed
	}
	h := &Hash{}
	if _, err := fmt.Sscanf(fields[2]+"$", "i=%d$", &h.iterations); err != nil || h.iterations < minIterations ||
		h.iterations > maxIterations {
		return nil, errMalformed
	}
	var err, sumErr error
	h.salt, err = base64.RawStdEncoding.DecodeString(fields[3])
	h.sum, sumErr = base64.RawStdEncoding.DecodeString(fields[4])
	if err != nil || sumErr != nil || len(h.salt) < saltLength || len(h.sum) != sha256.Size {
		return nil, errMalformed
	}
	return h, nil
}

// Matches reports whether h is the hash of password. Its time does not depend on where they differ. It takes as
// long as [New] unless h is Generated.
func (h *Hash) Matches(password string) bool {
	if len(password) > maxLength {
		return false
	}
	if h.Generated() {
		sum := sha256.Sum256([]byte(password))
		return len(password) >= generatedLength && subtle.ConstantTimeCompare(sum[:], h.sum) == 1
	}
	sum, err := pbkdf2.Key(sha256.New, password, h.salt, h.iterations, len(h.sum))
	return err == nil && subtle.ConstantTimeCompare(sum, h.sum) == 1
}
