// Reasoning and its signatures.

package simulator

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// signaturePrefix begins the signatures of a Backend.
const signaturePrefix = "demo."

func signatureOf(reasoning string) string {
	sum := sha256.Sum256([]byte(reasoning))
	return signaturePrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}

// reasoningFor returns the reasoning before the reply to req, or "" if the client
// did not ask for any.
func reasoningFor(req *llm.ChatRequest) string {
	switch req.ReasoningEffort {
	case "", "none":
		return ""
	}
	return "The user said: " + userText(req.Messages)
}

// sendReasoning sends the reasoning in tokens, and then its signature.
func (s *sender) sendReasoning(r *reply) bool {
	for rest := r.reasoning; rest != ""; {
		token := rest[:tokenLen(rest)]
		rest = rest[len(token):]
		if !s.sendToAll(r.choices, func(int) llm.Delta { return llm.Delta{Reasoning: token} }) {
			return false
		}
	}
	if r.reasoning == "" {
		return true
	}
	detail := llm.ReasoningDetail{Type: llm.ReasoningText, Signature: signatureOf(r.reasoning)}
	return s.sendToAll(r.choices, func(int) llm.Delta {
		return llm.Delta{ReasoningDetails: []llm.ReasoningDetail{detail}}
	})
}

// checkReasoning returns an error if a message has reasoning that does not match its
// signature by a Backend.
func checkReasoning(messages []llm.Message) error {
	for i := range messages {
		m := &messages[i]
		for _, d := range m.ReasoningDetails {
			text := cmp.Or(d.Text, m.Reasoning)
			if strings.HasPrefix(d.Signature, signaturePrefix) && d.Signature != signatureOf(text) {
				e := llm.Errorf(
					http.StatusBadRequest,
					"invalid_signature",
					"Invalid signature: reasoning must be returned as it was received.",
				)
				e.Param = "messages"
				return e
			}
		}
	}
	return nil
}
