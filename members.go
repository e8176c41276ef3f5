// Which members of a request without a field are allowed.

package llmhttp

import (
	"context"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

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
	return !membername.IsRefused(name)
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
