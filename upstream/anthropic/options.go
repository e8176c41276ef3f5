// Options of a Backend.

package anthropic

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
)

// DefaultVersion is the default of Options.Version.
const DefaultVersion = "2023-06-01"

// versionSystemInPlace is the first version of the API with messages of the role system among the others.
const versionSystemInPlace = "2026-10-21"

// DefaultMaxTokens is the default of Options.MaxTokens.
const DefaultMaxTokens = 8192

// Options configure a [Backend]. The zero value is ready to use.
type Options struct {
	// Server tells how the server is reached: its key, header, models, timeouts and bounds. The Name is "anthropic" if it is
	// empty. CacheControl, Images, TokenizePath, OmitStreamOptions and ReasoningName must be zero: they are about other
	// formats.
	Server upstream.Options

	// BearerKey sends the key as "Authorization: Bearer <key>" in place of "X-Api-Key: <key>", as other vendors of the API
	// take it, and llmhttp takes either.
	BearerKey bool

	// Version is the header Anthropic-Version. If empty, it is DefaultVersion.
	Version string

	// Betas are the values of the header Anthropic-Beta for all requests. Those that clients of package messages send are
	// added if messages.Options.Anthropic is set.
	Betas []string

	// MaxTokens is the max_tokens of requests without a limit, which the API requires. Zero means DefaultMaxTokens;
	// negative means that max_tokens is left out, for servers that do not require it.
	MaxTokens int

	// ThinkingBudgets makes a reasoning effort a budget of thinking tokens, for models and servers that have no
	// output_config.effort: 2,048 tokens for low, 8,192 for medium, 16,384 for high and 32,768 for more, but fewer than
	// the tokens of the reply, and none if these are 1,024 or fewer.
	ThinkingBudgets bool

	// UnsignedThinking sends the reasoning of earlier turns also where it has no signature. DeepSeek, Kimi and others whose
	// thinking has none want it back; Anthropic refuses it.
	UnsignedThinking bool

	// OmitCacheControl leaves out cache_control, for servers that refuse it.
	OmitCacheControl bool
}

// validate returns an error that names the first option that is invalid and that package upstream does not check.
func (o *Options) validate() error {
	s := &o.Server
	switch {
	case s.TokenizePath != "", s.OmitStreamOptions, s.ReasoningName != "", s.CacheControl != "", s.Images.Hosts != nil, s.Images.Transport != nil,
		s.Images.Timeout != 0, s.Images.MaxSize != 0, s.Images.OmitFormat:
		return errors.New("anthropic: Options.Server must not have CacheControl, Images, TokenizePath, OmitStreamOptions or ReasoningName")
	case !isHeaderToken(cmp.Or(o.Version, DefaultVersion)):
		return fmt.Errorf("anthropic: Options.Version must not be %q", o.Version)
	}
	for _, beta := range o.Betas {
		if !isHeaderToken(beta) {
			return fmt.Errorf("anthropic: Options.Betas must not have %q", beta)
		}
	}
	for name := range s.Header {
		switch http.CanonicalHeaderKey(name) {
		case headerVersion, headerBeta:
			return fmt.Errorf("anthropic: Options.Server.Header must not have %s, which the Backend sets", http.CanonicalHeaderKey(name))
		case headerKey, headerAuthorization:
			if s.Key != "" || s.KeyFunc != nil {
				return fmt.Errorf("anthropic: Options.Server.Header has %s, and there is a key as well", http.CanonicalHeaderKey(name))
			}
		}
	}
	return nil
}

const (
	headerVersion       = "Anthropic-Version"
	headerBeta          = "Anthropic-Beta"
	headerKey           = "X-Api-Key"
	headerAuthorization = "Authorization"
)

// setDefaults replaces the zero values of o, and copies what o refers to.
func (o *Options) setDefaults() {
	o.Server.Name = cmp.Or(o.Server.Name, "anthropic")
	o.Version = cmp.Or(o.Version, DefaultVersion)
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	o.Betas = slices.Clone(o.Betas)
}

// setKey sets the key as the server takes it.
func (o *Options) setKey(h http.Header, key string) {
	if o.BearerKey {
		client.SetBearer(h, key)
		return
	}
	h.Set(headerKey, key)
}

// isHeaderToken reports whether s may be one of the values of a header that are separated by commas.
func isHeaderToken(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' })
}
