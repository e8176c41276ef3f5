// Which members of a request without a field are allowed.

package llmhttp

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// refusedMembers are the members that [DefaultUnknownMembers] refuses. The name of each
// is followed by the server that documents it. A server that does not know a member
// ignores it.
var refusedMembers = []string{
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

// DefaultUnknownMembers is what a Handler uses if Options.Accept.UnknownMembers is nil. It
// returns false for members that change the model, the price or the address of a request
// at a server of another program, according to the documents of that program:
//
//	api_base, api_key, base_url, best_of, fallbacks, kv_transfer_params, lora, models,
//	n_cmpl, n_predict, plugins, preset, provider, user_config
//
// The case of name does not matter. Parameters of OpenAI's API pass, even if they change
// the price, as service_tier does.
func DefaultUnknownMembers(name string) bool {
	return !slices.Contains(refusedMembers, membername.Lower(name))
}

// AllowsUnknownMember reports whether a request may have a top-level member with the
// given name, for which the format has no field. It is for Protocols, which refuse the
// request if it reports false. The Options.Accept.UnknownMembers of the Handler whose request ctx
// belongs to decides, by the name in lower case; if ctx belongs to none,
// [DefaultUnknownMembers] does. See "Protocols" in the package documentation.
func AllowsUnknownMember(ctx context.Context, name string) bool {
	if q := requestFrom(ctx); q != nil {
		return q.h.opts.Accept.UnknownMembers(membername.Lower(name))
	}
	return DefaultUnknownMembers(name)
}

// checkUnknownMembers returns an *Error if a request must not have one of the given
// top-level members without a field.
func checkUnknownMembers(ctx context.Context, members llm.Extra) error {
	return invalid.Members(members, func(name string) bool { return AllowsUnknownMember(ctx, name) })
}
