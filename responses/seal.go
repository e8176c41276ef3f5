// encrypted_content, which has the reasoning of the Backend or the summary of a conversation, encrypted
// with AES-GCM. The account is authenticated with it, so that a client cannot use what belongs to another
// account.

package responses

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// A plainReasoning is the plaintext of encrypted_content: the reasoning of a reply,
// which the Backend gets again with the next request.
type plainReasoning struct {
	Text    string                `json:"text,omitempty"`
	Alias   bool                  `json:"alias,omitempty"` // see llm.Message.ReasoningAlias
	Details []llm.ReasoningDetail `json:"details,omitempty"`
}

// A sealer encrypts reasoning and summaries with AES-256-GCM, so that clients can neither read
// nor change them. The account is authenticated too: those of another account are refused. Each has a key
// of its own, so that a client cannot send one as the other.
type sealer struct{ reasoning, summaries cipher.AEAD }

// These begin encrypted_content and identify the version of its format.
const (
	sealedPrefix  = "llmhttp1."         // of reasoning
	summaryPrefix = "llmhttp-summary1." // of a summary
)

// newSealer returns a sealer with keys that are derived from secret, or with
// random ones if secret is nil.
func newSealer(secret []byte) *sealer {
	switch {
	case secret == nil:
		secret = make([]byte, 32)
		rand.Read(secret) // never fails
	case len(secret) < minSecret:
		panic("responses: Options.Secret must have at least 16 bytes")
	}
	return &sealer{reasoning: newAEAD("llmhttp reasoning", secret), summaries: newAEAD("llmhttp summary", secret)}
}

// newAEAD returns a cipher with the key for a purpose that is derived from secret.
func newAEAD(purpose string, secret []byte) cipher.AEAD {
	sum := sha256.Sum256(append([]byte(purpose+"\x00"), secret...))
	key := sum[:]
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (s *sealer) seal(account string, r *plainReasoning) (string, error) {
	plain, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return encrypt(s.reasoning, sealedPrefix, account, plain), nil
}

// open decrypts content. It returns an empty plainReasoning if s has not sealed content
// for the account.
func (s *sealer) open(account, content string) (r plainReasoning) {
	if plain, ok := decrypt(s.reasoning, sealedPrefix, account, content); ok {
		_ = json.Unmarshal(plain, &r) // seal has encoded it
	}
	return r
}

// sealSummary encrypts the summary of a conversation.
func (s *sealer) sealSummary(account, summary string) string {
	return encrypt(s.summaries, summaryPrefix, account, []byte(summary))
}

// openSummary decrypts content. ok is false if s has not sealed content as a summary for the account.
func (s *sealer) openSummary(account, content string) (summary string, ok bool) {
	plain, ok := decrypt(s.summaries, summaryPrefix, account, content)
	return string(plain), ok
}

func encrypt(aead cipher.AEAD, prefix, account string, plain []byte) string {
	return prefix + base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, []byte(account)))
}

func decrypt(aead cipher.AEAD, prefix, account, content string) (plain []byte, ok bool) {
	encoded, ok := strings.CutPrefix(content, prefix)
	if !ok {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, false
	}
	plain, err = aead.Open(nil, nil, sealed, []byte(account))
	return plain, err == nil
}
