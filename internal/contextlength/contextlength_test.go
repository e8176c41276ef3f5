package contextlength_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/contextlength"
)

func TestFind(t *testing.T) {
	both, unknown := contextlength.Length{Tokens: 9000, Max: 8192}, contextlength.Length{}
	for name, test := range map[string]struct {
		code, typ, message string
		want               contextlength.Length
	}{
		"OpenAI": {"context_length_exceeded", "invalid_request_error",
			"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages.", both},
		"OpenAI, Responses": {"context_length_exceeded", "", "Your input exceeds the context window of this model. Please adjust your input and try again.", unknown},
		"OpenAI, limit":     {"", "", "Input tokens exceed the configured limit of 8192 tokens. Your messages resulted in 9000 tokens.", both},
		"vLLM":              {"400", "BadRequestError", "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens in the messages", both},
		"vLLM, with the reply": {"", "BadRequestError",
			"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion).", both},
		"vLLM, input tokens": {"", "", "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce the length of the input messages.", both},
		"vLLM, max_tokens": {"", "",
			"'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context length is 8192 tokens and your request has 1000 input tokens (8000 > 8192 - 1000).", unknown},
		"vLLM, early":     {"", "", "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller.", both},
		"vLLM 2026":       {"400", "", "You passed 9000 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8192 tokens.", both},
		"SGLang":          {"400", "BadRequest", "The input (9000 tokens) is longer than the model's context length (8192 tokens).", both},
		"SGLang, total":   {"", "", "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.", both},
		"SGLang, allowed": {"", "", "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or enable --allow-auto-truncate.", both},
		"llama.cpp":       {"400", "exceed_context_size_error", "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", both},
		"llama.cpp 2025":  {"400", "invalid_request_error", "the request exceeds the available context size, try increasing it", unknown},
		"OpenRouter": {"400", "", "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (8000 of text input, 1000 in the output). " +
			"Please reduce the length of either one, or use the \"middle-out\" transform.", both},
		"TGI":               {"", "validation", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 100 `max_new_tokens`", both},
		"TGI, inputs":       {"", "validation", "Input validation error: `inputs` must have less than 8192 tokens. Given: 9000", both},
		"Ollama":            {"", "", "prompt too long; exceeded max context length by 808 tokens", unknown},
		"Ollama, embedding": {"", "", "the input length exceeds the context length", unknown},
		"Mistral":           {"3051", "invalid_request_error", "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length", both},
		"DeepSeek": {"invalid_request_error", "invalid_request_error",
			"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8900 in the messages, 100 in the completion). Please reduce the length of the messages or completion.", both},
		"Anthropic":                         {"", "invalid_request_error", "prompt is too long: 9000 tokens > 8192 maximum", both},
		"Anthropic, with both":              {"", "invalid_request_error", "input length and `max_tokens` exceed context limit: 8000 + 1000 > 8192, decrease input length or `max_tokens` and try again", unknown},
		"Anthropic on Bedrock":              {"", "", "Prompt is too long", unknown},
		"Gemini":                            {"400", "", "The input token count (9000) exceeds the maximum number of tokens allowed (8192).", both},
		"Gemini, one number":                {"400", "", "The input token count exceeds the maximum number of tokens allowed 8192.", unknown},
		"Vertex AI":                         {"", "", "Unable to submit request because the input token count is 9000 but model only supports up to 8192. Reduce the input token count and try again.", both},
		"xAI":                               {"Client specified an invalid argument", "", "This model's maximum prompt length is 8192 but the request contains 9000 tokens.", both},
		"Groq":                              {"", "invalid_request_error", "Please reduce the length of the messages or completion.", unknown},
		"Cerebras":                          {"", "", "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", both},
		"Kimi":                              {"", "invalid_request_error", "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)", both},
		"Copilot":                           {"model_max_prompt_tokens_exceeded", "", "prompt token count of 9000 exceeds the limit of 8192", both},
		"Fireworks AI":                      {"", "", "The prompt is too long: 9000, model maximum context length: 8192", both},
		"Bedrock":                           {"", "", "Input is too long for requested model.", unknown},
		"Bedrock, Titan":                    {"", "", "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9000", both},
		"Cohere":                            {"", "", "too many tokens: total number of tokens in the prompt cannot exceed 8192 - received 9000. Try using a shorter prompt.", both},
		"Cohere, chat":                      {"", "", "too many tokens: size limit exceeded by 808 tokens. Try using shorter or fewer inputs.", unknown},
		"LM Studio":                         {"", "", "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 8192 tokens, which is not enough.", both},
		"TensorRT":                          {"", "", "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)", both},
		"DashScope":                         {"invalid_parameter_error", "", "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 8192]", unknown},
		"MiniMax":                           {"2013", "", "invalid params, context window exceeds limit", unknown},
		"Zhipu AI":                          {"1261", "", "Prompt 超长", unknown},
		"LiteLLM":                           {"400", "", "litellm.ContextWindowExceededError: litellm.BadRequestError: This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.", both},
		"ds4":                               {"", "", "Prompt has 9000 tokens, but the configured context size is 8192 tokens", both},
		"only the code, with any text":      {"context_length_exceeded", "", "Your prompt has 9000 tokens, but the maximum is 8192.", both},
		"only the code, without a text":     {"context_length_exceeded", "", "", unknown},
		"numbers that are too large to use": {"", "", "prompt is too long: 99999999999999999999999 tokens > 88888888888888888888888 maximum", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := contextlength.Find(test.code, test.typ, test.message)
			assert.True(t, ok)
			assert.Equal(t, test.want, got)
		})
	}
}

// Errors about other lengths, limits and contexts are others.
func TestFind_Others(t *testing.T) {
	for _, message := range []string{
		"",
		"max_tokens is too large: 99999. This model supports at most 16384 completion tokens.",
		"max_tokens exceeds the limit of 8192",
		"Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 100 instead.",
		"Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000. Please reduce your message size and try again.",
		"Rate limit reached: too many tokens per day",
		"The maximum length of 'stop' is 4.",
		"Invalid value: 'context'.",
		"token quota is not enough",
	} {
		_, ok := contextlength.Find("", "", message)
		assert.False(t, ok, message)
	}
	_, ok := contextlength.Find("rate_limit_exceeded", "tokens", "Slow down.")
	assert.False(t, ok)
}
