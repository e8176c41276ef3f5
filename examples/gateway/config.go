package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// A config is the content of the configuration file. Secrets are not in the file but in environment
// variables, which the file names.
type config struct {
	// PublicURL is the address at which clients reach the gateway, such as
	// "https://llm.example.com", for the addresses of images. If empty, it is the address that the
	// gateway listens on.
	PublicURL string `json:"public_url"`

	// CodexInstructions is the path of a file with the CodexInstructions of [responses.Options]. If empty,
	// there are none.
	CodexInstructions string `json:"codex_instructions_file"`

	// ResponsesSecretEnv is the environment variable with the secret that encrypts reasoning and
	// summaries of conversations, of 16 characters or more. If empty, clients of the Responses API
	// cannot go on with a conversation that was compacted when the gateway starts again.
	ResponsesSecretEnv string `json:"responses_secret_env"`

	Upstreams []upstreamConfig `json:"upstreams"`
	Routes    []routeConfig    `json:"routes"`
	Breaker   breakerConfig    `json:"breaker"`
	Keys      []keyConfig      `json:"keys"`
}

// A breakerConfig has the options of circuit breakers in [route.Options].
type breakerConfig struct {
	Failures int      `json:"failures"` // how many open a breaker; if missing, 5; if negative, breakers never open
	OpenFor  duration `json:"open_for"` // if missing, 10s
}

// An upstreamConfig is a server of models. Fields that are missing have the
// defaults of [upstream.Options], unless the comment says otherwise.
type upstreamConfig struct {
	Name              string   `json:"name"`
	Format            string   `json:"format"`  // "openai" or "anthropic"; if missing, "openai"
	URL               string   `json:"url"`     // such as "https://host/v1", or "https://api.anthropic.com"
	KeyEnv            string   `json:"key_env"` // the environment variable with the server's key; if empty, it needs none
	ImageHosts        []string `json:"image_hosts"`
	FirstByteTimeout  duration `json:"first_byte_timeout"` // until another target is tried; if missing, 2m
	SilenceTimeout    duration `json:"silence_timeout"`
	TokenizePath      string   `json:"tokenize_path"` // of an endpoint that counts tokens as vLLM's "/tokenize"
	OmitStreamOptions bool     `json:"omit_stream_options"`
	OmitImageFormat   bool     `json:"omit_image_format"`
	CacheControl      string   `json:"cache_control"` // what it knows of cache_control: "type", or "ttl" as OpenRouter and LiteLLM; if missing, nothing

	Anthropic anthropicConfig `json:"anthropic"` // for the format "anthropic", which has none of the six before
}

// An anthropicConfig has the options of [anthropic.Options] for servers that differ from Anthropic's.
type anthropicConfig struct {
	BearerKey        bool     `json:"bearer_key"`
	Version          string   `json:"version"`
	Betas            []string `json:"betas"`
	MaxTokens        int      `json:"max_tokens"` // of requests without a limit; if missing, 8192; if negative, none
	ThinkingBudgets  bool     `json:"thinking_budgets"`
	UnsignedThinking bool     `json:"unsigned_thinking"`
	OmitCacheControl bool     `json:"omit_cache_control"`
}

// A routeConfig is a [route.Route].
type routeConfig struct {
	Model    string         `json:"model"`
	Strategy route.Strategy `json:"strategy"`
	Targets  []targetConfig `json:"targets"`
}

// A targetConfig is a [route.Target].
type targetConfig struct {
	Name     string `json:"name"` // if empty, the upstream's
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
	Weight   int    `json:"weight"`

	Params paramsConfig `json:"params"`
}

// A paramsConfig has the [route.ParamRules] of a target.
type paramsConfig struct {
	Rename map[string]string `json:"rename"`
	Drop   []string          `json:"drop"`
	Refuse []string          `json:"refuse"`
}

// A keyConfig is an [llmhttp.Key] and its secret, which is given by SecretEnv or
// by SecretHash.
type keyConfig struct {
	ID         string          `json:"id"`
	Account    string          `json:"account"`
	SecretEnv  string          `json:"secret_env"`  // the environment variable with the secret
	SecretHash string          `json:"secret_hash"` // the SHA-256 hash of the secret, in hexadecimal
	Scopes     []llmhttp.Scope `json:"scopes"`      // if missing, all; if empty, none
	Models     []string        `json:"models"`      // if missing, all; if empty, none
	Expires    time.Time       `json:"expires"`     // if missing, never
	Limits     limitsConfig    `json:"limits"`
	Subjects   []subjectConfig `json:"subjects"`
	PerUser    limitsConfig    `json:"per_user"` // for each end user
}

// A subjectConfig is an [llmhttp.Subject].
type subjectConfig struct {
	Kind   string       `json:"kind"` // "account", or any other such as "team"
	ID     string       `json:"id"`
	Limits limitsConfig `json:"limits"`
}

// A limitsConfig has the [llmhttp.Limits] of a key.
type limitsConfig struct {
	Requests   *rateConfig  `json:"requests"`
	Tokens     *rateConfig  `json:"tokens"`
	Quota      *quotaConfig `json:"quota"`
	Completion int          `json:"max_completion_tokens"`
	Concurrent int          `json:"concurrent"`
}

// A rateConfig is an [llmhttp.Rate].
type rateConfig struct {
	N     int      `json:"n"`
	Per   duration `json:"per"`   // if missing, a minute
	Burst int      `json:"burst"` // if missing, N
}

// A quotaConfig is an [llmhttp.Quota].
type quotaConfig struct {
	Tokens int      `json:"tokens"`
	Per    duration `json:"per"` // of a sliding period; if missing, the calendar month
}

// A duration is positive. In the file it is a string such as "90s" or "1h30m".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v <= 0 {
		err = fmt.Errorf("duration %q is not positive", text)
	}
	*d = duration(v)
	return err
}

// readConfig reads a file. Unknown and duplicate names are errors.
func readConfig(file string) (*config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := new(config)
	if err := json.Unmarshal(data, c, json.RejectUnknownMembers(true)); err != nil {
		var offset int64
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			offset = e.ByteOffset
		} else if e, ok := errors.AsType[*json.SemanticError](err); ok {
			offset = e.ByteOffset
		}
		return nil, fmt.Errorf("%s:%d: %w", file, 1+bytes.Count(data[:offset], []byte("\n")), err)
	}
	return c, nil
}

// environment returns the secret in the environment variable that a field names.
// The errors do not contain the name, which might be the secret itself by
// mistake.
func environment(field, name string) (string, error) {
	v := os.Getenv(name)
	switch {
	case v == "":
		return "", fmt.Errorf("%s: the environment variable is not set", field)
	case strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf(
			"%s: the environment variable has a character that a key must not have, such as a space or a line break",
			field,
		)
	}
	return v, nil
}
