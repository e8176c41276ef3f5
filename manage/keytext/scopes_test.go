package keytext

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

func TestParseScopes(t *testing.T) {
	for text, want := range map[string][]llmhttp.Scope{
		"all": nil, "none": {}, "chat": {"chat"}, "chat, classify": {"chat", "classify"}, "chats": {"chats"},
	} {
		got, err := ParseScopes(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"": "empty item", "chat,": "empty item", "Chat": `the scope "Chat" is malformed`, "chat models": "malformed",
		"chat,all": `"all" is not a scope`, "none,chat": `"none" is not a scope`,
	} {
		_, err := ParseScopes(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestScopeHint(t *testing.T) {
	assert.Empty(t, ScopeHint(nil))
	assert.Empty(t, ScopeHint(llmhttp.Scopes()))
	for _, own := range []llmhttp.Scope{"classify", "score", "billing", "chat-admin", "audio", "c"} {
		assert.Empty(t, ScopeHint([]llmhttp.Scope{own}), own)
	}
	for scope, want := range map[llmhttp.Scope]llmhttp.Scope{
		"chats": "chat", "cht": "chat", "model": "models", "image": "images", "embed": "embeddings", "embeding": "embeddings", "moderation": "moderations",
		"transcription": "transcriptions", "completion": "completions", "reranks": "rerank", "usages": "usage",
	} {
		assert.Equal(t, `llmhttp has no endpoint with the scope "`+string(scope)+`": did you mean "`+string(want)+`"?`, ScopeHint([]llmhttp.Scope{"classify", scope}))
	}
	assert.Equal(t, `llmhttp has no endpoint with the scope "chats": did you mean "chat"? llmhttp has no endpoint with the scope "model": did you mean "models"?`,
		ScopeHint([]llmhttp.Scope{"chats", "chat", "model"}))
}
