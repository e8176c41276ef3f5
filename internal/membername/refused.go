package membername

import "slices"

// refused are the members that llmhttp.DefaultUnknownMembers refuses. The name of each
// is followed by the server that documents it. A server that does not know a member
// ignores it.
var refused = []string{
	// Other models than "model".
	"models",      // OpenRouter: the models to try in turn
	"preset",      // OpenRouter: a stored configuration, which has a model
	"fallbacks",   // LiteLLM (proxy/client_side_fallbacks): the models to try if the first fails
	"user_config", // LiteLLM (proxy/clientside_auth): a model list with addresses and keys
	"lora",        // llama.cpp (tools/server): the adapters to apply, and their scales

	// What a request costs.
	"best_of",   // vLLM (chats): how many choices are made to choose from; completions have a field for it
	"n_cmpl",    // llama.cpp (tools/server): n by another name, which comes before it
	"n_predict", // llama.cpp (tools/server): max_tokens by another name, which comes before it
	"provider",  // OpenRouter: who serves the model, and for which price
	"plugins",   // OpenRouter: web search and others, which are charged separately

	// Where the server sends the request, and with which key.
	"api_base",           // LiteLLM (proxy/clientside_auth)
	"api_key",            // LiteLLM (proxy/clientside_auth)
	"base_url",           // LiteLLM: api_base by another name
	"kv_transfer_params", // vLLM (disaggregated prefill): the host and port from which it loads a cache
}

// IsRefused reports whether a request must not have a member without a field, by default: see
// llmhttp.DefaultUnknownMembers. The case of name does not matter.
func IsRefused(name string) bool { return slices.Contains(refused, Lower(name)) }
