package llm_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// fourLifetimes are those that are sold.
var fourLifetimes = llm.CacheWrites{5 * time.Minute: 100, 30 * time.Minute: 200, time.Hour: 300, 12 * time.Hour: 400}

func TestCacheWrites_InChat(t *testing.T) {
	for name, test := range map[string]struct {
		from, want string // prompt_tokens_details
		writes     llm.CacheWrites
	}{
		"an hour": {`{"cache_write_tokens":9,"cache_write_1h_tokens":4}`,
			`{"cache_write_tokens":9,"cache_creation_token_details":{"ephemeral_1h_input_tokens":4},"cache_write_1h_tokens":4}`,
			llm.CacheWrites{time.Hour: 4}},
		"several": {`{"cache_creation_token_details":{"ephemeral_12h_input_tokens":4,"ephemeral_30m_input_tokens":2,"ephemeral_5m_input_tokens":1,"ephemeral_60m_input_tokens":3}}`,
			`{"cache_creation_token_details":{"ephemeral_5m_input_tokens":1,"ephemeral_30m_input_tokens":2,"ephemeral_1h_input_tokens":3,"ephemeral_12h_input_tokens":4},"cache_write_1h_tokens":3}`,
			llm.CacheWrites{5 * time.Minute: 1, 30 * time.Minute: 2, time.Hour: 3, 12 * time.Hour: 4}},
		"the larger number": {`{"cache_creation_token_details":{"ephemeral_1h_input_tokens":3},"cache_write_1h_tokens":2}`,
			`{"cache_creation_token_details":{"ephemeral_1h_input_tokens":3},"cache_write_1h_tokens":3}`, llm.CacheWrites{time.Hour: 3}},
		"what is not understood": {`{"cached_tokens":1,"cache_creation_token_details":{"ephemeral_1h_input_tokens":"x","ephemeral_0s_input_tokens":1,"ephemeral_1w_input_tokens":1,"other":5,"ephemeral_1s_input_tokens":-1}}`,
			`{"cached_tokens":1}`, nil},
		"no object": {`{"cached_tokens":1,"cache_creation_token_details":[1]}`, `{"cached_tokens":1}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var p llm.PromptTokensDetails
			require.NoError(t, json.Unmarshal([]byte(test.from), &p))
			assert.Equal(t, test.writes, p.CacheWrites)
			b, err := json.Marshal(p)
			require.NoError(t, err)
			assert.Equal(t, test.want, string(b))
		})
	}
}

func TestCacheWrites_JSON(t *testing.T) {
	b, err := json.Marshal(fourLifetimes)
	require.NoError(t, err)
	assert.Equal(t, `{"5m":100,"30m":200,"1h":300,"12h":400}`, string(b))
	var w llm.CacheWrites
	require.NoError(t, json.Unmarshal(b, &w))
	assert.Equal(t, fourLifetimes, w)
	require.NoError(t, json.Unmarshal([]byte(`{"90s":1,"1d":2,"24h":3,"1h":0}`), &w))
	assert.Equal(t, llm.CacheWrites{90 * time.Second: 1, 24 * time.Hour: 5}, w)
	for _, name := range []string{"", "h", "0h", "-1h", "+1h", "1.5h", "1w", "1h30m", "1 h", "9223372036854775807h", "99999999999999999999s"} {
		assert.ErrorContains(t, json.Unmarshal([]byte(`{"`+name+`":1}`), &w), "how long a cache keeps", "%s", name)
	}
	assert.Error(t, json.Unmarshal([]byte(`[]`), &w))
}
