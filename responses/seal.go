// encrypted_content, which has the reasoning of the Backend, encrypted with AES-GCM. The account is
// authenticated with it, so that a client cannot use the reasoning of another account.

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

// A sealer encrypts reasoning with AES-256-GCM, so that clients can neither read
// nor change it. The account is authenticated too: the reasoning of another
// account is refused.
type sealer struct{ aead cipher.AEAD }

// sealedPrefix begins encrypted_content and identifies the version of its format.
const sealedPrefix = "llmhttp1."

// newSealer returns a sealer with a key that is derived from secret, or with a
// random one if secret is nil.
func newSealer(secret []byte) *sealer {
	key := make([]byte, 32)
	switch {
	case secret == nil:
		rand.Read(key) // never fails
	case len(secret) < minSecret:
		panic("responses: Options.Secret must have at least 16 bytes")
	default:
		sum := sha256.Sum256(append([]byte("llmhttp reasoning\x00"), secret...))
		copy(key, sum[:])
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &sealer{aead}
}

func (s *sealer) seal(account string, r *plainReasoning) (string, error) {
	plain, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return sealedPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(account))), nil
}

// open decrypts content. It returns an empty plainReasoning if s has not sealed content
// for the account.
func (s *sealer) open(account, content string) (r plainReasoning) {
	encoded, ok := strings.CutPrefix(content, sealedPrefix)
	if !ok {
		return r
	}
	sealed, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return r
	}
	if plain, err := s.aead.Open(nil, nil, sealed, []byte(account)); err == nil {
		_ = json.Unmarshal(plain, &r) // seal has encoded it
	}
	return r
}
