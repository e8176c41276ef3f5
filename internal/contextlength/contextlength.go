// Package contextlength recognizes errors that say that a prompt, or a prompt with the tokens that are asked for, is
// longer than the context of a model. OpenAI has a code for them; other servers have codes, types or texts of their own.
package contextlength

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Code is the code of OpenAI's error for a prompt that is too long.
const Code = "context_length_exceeded"

// names are the codes and types of such errors, in lower case.
var names = []string{
	Code,
	"exceed_context_size_error",        // llama.cpp, as a type
	"model_max_prompt_tokens_exceeded", // GitHub Copilot
	"model_context_window_exceeded",    // Z.ai
	"contextwindowexceedederror",       // LiteLLM, as a type
}

// forms are the texts of such errors. The group, if there is one, is the longest prompt that is possible.
var forms = compile(
	// OpenAI, vLLM, SGLang, DeepSeek, OpenRouter ("This endpoint's"), Fireworks AI: "This model's maximum context
	// length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion)." vLLM,
	// when a prompt is tokenized early: "The decoder prompt (length 9000) is longer than the maximum model length of
	// 8192." xAI: "This model's maximum prompt length is 8192 but the request contains 9000 tokens." OpenAI's models
	// of embeddings and others: "maximum input length is 8192 tokens".
	`maximum (?:context|model|prompt|(?:allowed )?input) length(?:(?: is| of|:|,)* ?\(?(\d+))?`,
	// vLLM since 2026: "You passed 9000 input tokens and requested 0 output tokens. However, the model's context length
	// is only 8192 tokens, resulting in a maximum input length of 8192 tokens."
	`context length is only (\d+)`,
	// SGLang and Together AI: "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
	`longer than the model's context length(?: \((\d+))?`,
	// SGLang: "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens)."
	`input length .{0,40}exceeds the maximum (?:allowed )?length(?:(?: of)? \(?(\d+))?`,
	// llama.cpp: "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
	`exceeds? the available context size(?: \((\d+))?`,
	`context size has been exceeded`,
	// TGI: "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and
	// 100 `max_new_tokens`", or "`inputs` must have less than 8192 tokens. Given: 9000"
	"`inputs` tokens \\+ `max_new_tokens` must be <= (\\d+)",
	"`inputs` must have less than (\\d+) tokens",
	// Ollama: "prompt too long; exceeded max context length by 808 tokens", and "the input length exceeds the context
	// length" of embeddings
	`prompt too long; exceeded (?:max )?context length`,
	`input length exceeds (?:the )?(?:maximum )?context length`,
	// Mistral: "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length"
	`too large for model with (\d+)`,
	// Anthropic: "prompt is too long: 9000 tokens > 8192 maximum", "input length and `max_tokens` exceed context limit:
	// 8000 + 1000 > 8192". Without numbers also servers that are compatible.
	`prompt is too long(?:: \d+ tokens > (\d+))?`,
	"input length and `?max_tokens`? exceed context limit",
	// Gemini: "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."
	// Vertex AI: "the input token count is 9000 but model only supports up to 8192"
	`input token count.{0,40}exceeds the maximum(?: number of tokens allowed(?: \(?(\d+))?)?`,
	`input token count is \d+ but (?:the )?model only supports up to (\d+)`,
	// OpenAI's Responses API: "Your input exceeds the context window of this model."; LiteLLM, MiniMax, Z.ai
	`exceeds?(?: the)?(?: model'?s?)? context window(?: of (\d+))?`,
	`context window exceeds limit`,
	`input tokens exceed the configured limit(?: of (\d+))?`,
	// Groq, Cerebras: "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192"
	`reduce the length of the messages(?:.{0,60}while limit is (\d+))?`,
	// Kimi: "Your request exceeded model token limit: 8192 (requested: 9000)"
	`exceeded model token limit(?:: (\d+))?`,
	// GitHub Copilot: "prompt token count of 9000 exceeds the limit of 8192"
	`prompt token count of \d+ exceeds the limit of (\d+)`,
	// Amazon Bedrock: "Input is too long for requested model.", "Too many input tokens. Max input tokens: 8192, ..."
	`input is too long for (?:the )?requested model`,
	`too many input tokens(?:\. max input tokens: (\d+))?`,
	// Cohere: "too many tokens: total number of tokens in the prompt cannot exceed 8192 - received 9000.", "too many
	// tokens: size limit exceeded by 808 tokens."
	`too many tokens: (?:.{0,60}cannot exceed (\d+)|size limit exceeded)`,
	// LM Studio: "the model is loaded with context length of only 8192 tokens, which is not enough", "The number of
	// tokens to keep from the initial prompt is greater than the context length"
	`context length of only (\d+) tokens`,
	`initial prompt is greater than the context length`,
	// TensorRT-LLM: "The sum of prompt length (9000), query length (0) should not exceed max_num_tokens (8192)"
	`prompt length \(\d+(?:\.\d+)?\).{0,60}(?:should not exceed|exceeds) \w+ \((\d+)\)`,
	// DashScope: "Range of input length should be [1, 8192]"
	`range of input length should be \[\d+, ?(\d+)\]`,
	// antirez/ds4: "Prompt has 9000 tokens, but the configured context size is 8192 tokens"
	`configured context size is (\d+) tokens`,
	// Zhipu AI
	`prompt 超长`, `prompt exceeds max length`,
	`context[_ ]length[_ ]exceeded`,
)

func compile(texts ...string) (list []*regexp.Regexp) {
	for _, text := range texts {
		list = append(list, regexp.MustCompile("(?i)"+text))
	}
	return list
}

// A Length tells by how much a prompt is too long.
type Length struct {
	Tokens int // of the prompt, or of the prompt and the reply
	Max    int // how many are possible
}

// Find reports whether an error with a code, type and message says that a prompt is too long. Each of them may be
// empty. The Length is zero unless the message has both numbers.
func Find(code, typ, message string) (Length, bool) {
	found := slices.Contains(names, strings.ToLower(code)) || slices.Contains(names, strings.ToLower(typ))
	for _, form := range forms {
		match := form.FindStringSubmatch(message)
		if match == nil {
			continue
		}
		found = true
		if l, ok := lengthOf(message, cmp.Or(match[1:]...)); ok {
			return l, true
		}
	}
	if !found {
		return Length{}, false
	}
	// A server with the code may have any text: the first number after the word is the maximum.
	if _, after, ok := strings.Cut(message, "maximum"); ok {
		if l, ok := lengthOf(message, number.FindString(after)); ok {
			return l, true
		}
	}
	return Length{}, true
}

var number = regexp.MustCompile(`\d{1,15}`)

// lengthOf returns the Length for a maximum: the tokens are the first number of the message that is larger.
func lengthOf(message, maximum string) (Length, bool) {
	most, err := strconv.Atoi(maximum)
	if err != nil || most <= 0 {
		return Length{}, false
	}
	for _, text := range number.FindAllString(message, -1) {
		if n, err := strconv.Atoi(text); err == nil && n > most {
			return Length{n, most}, true
		}
	}
	return Length{}, false
}
