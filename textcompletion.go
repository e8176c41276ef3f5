package llmhttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationCompletions is the [Operation] of completing prompts without a chat.
const OperationCompletions Operation = "completions"

// ScopeCompletions is the [Scope] of completing prompts without a chat.
const ScopeCompletions Scope = "completions"

// maxCompletions is the number of choices of all prompts together.
const maxCompletions = 2048

// A Completer is a [Backend] that completes prompts as they are, without a template for a chat:
// editors, base models and benchmarks need that. The Handler does not make a chat of such a request,
// because its reply would be another one.
type Completer interface {
	// Complete returns the text that follows each prompt of req. The rules of Chat of a [Backend]
	// hold, except that of a chunk only the Content of a Delta is sent, and "logprobs" and other
	// members in the Extra of a choice, in the form of the format, which differs from that of
	// chats. Choice j of prompt i has the index i*N + j. If Echo is set, the text of a choice begins
	// with its prompt; the Completer should then report the Usage, because the Handler takes the
	// text for the completion. What it does not support, such as Suffix, it refuses with an
	// [*llm.Error] of status 400. The Completer owns req.
	Complete(ctx context.Context, req *CompletionRequest) llm.ChatStream
}

// A CompletionRequest is the body of POST /v1/completions. A Handler checks requests before it
// passes them to a [Completer]: there are 1 to 2048 prompts, and parameters are within their bounds.
//
// A nil pointer means that the client left the choice to the Backend.
type CompletionRequest struct {
	Model            string             `json:"model"`
	Prompt           CompletionPrompt   `json:"prompt,omitzero"`
	Suffix           string             `json:"suffix,omitzero"` // the text after the completion, which is then between the two
	Stream           bool               `json:"stream,omitzero"` // a Completer may ignore it: the Handler splits and joins
	StreamOptions    *llm.StreamOptions `json:"stream_options,omitzero"`
	Temperature      *float64           `json:"temperature,omitzero"`       // 0 to 2; the format's default is 1
	TopP             *float64           `json:"top_p,omitzero"`             // 0 to 1; the format's default is 1
	PresencePenalty  *float64           `json:"presence_penalty,omitzero"`  // -2 to 2; the format's default is 0
	FrequencyPenalty *float64           `json:"frequency_penalty,omitzero"` // -2 to 2; the format's default is 0
	MaxTokens        *int               `json:"max_tokens,omitzero"`        // of each choice, without the prompt; at least 0; the format's default is 16
	N                *int               `json:"n,omitzero"`                 // choices for each prompt, 1 to 128; the format's default is 1
	BestOf           *int               `json:"best_of,omitzero"`           // of which the best N are returned, up to 20; nil or 0 means N
	Logprobs         *int               `json:"logprobs,omitzero"`          // log probabilities of so many tokens at each place, 0 to 5; nil means none
	Echo             bool               `json:"echo,omitzero"`              // the text begins with the prompt
	Stop             llm.StringList     `json:"stop,omitzero"`              // sequences that end a choice, at most 4
	Extra            llm.Extra          `json:"-"`                          // seed, logit_bias and user among others
}

var completionRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *CompletionRequest) *string { return &r.Model }).Always(),
	jsonwire.Member("prompt", func(r *CompletionRequest) *CompletionPrompt { return &r.Prompt }, completionPromptJSON),
	jsonwire.String("suffix", func(r *CompletionRequest) *string { return &r.Suffix }),
	jsonwire.Bool("stream", func(r *CompletionRequest) *bool { return &r.Stream }),
	jsonwire.Pointer("stream_options", func(r *CompletionRequest) **llm.StreamOptions { return &r.StreamOptions }, streamOptionsJSON),
	jsonwire.OptionalFloat("temperature", func(r *CompletionRequest) **float64 { return &r.Temperature }).Between(0, 2),
	jsonwire.OptionalFloat("top_p", func(r *CompletionRequest) **float64 { return &r.TopP }).Between(0, 1),
	jsonwire.OptionalFloat("presence_penalty", func(r *CompletionRequest) **float64 { return &r.PresencePenalty }).Between(-2, 2),
	jsonwire.OptionalFloat("frequency_penalty", func(r *CompletionRequest) **float64 { return &r.FrequencyPenalty }).Between(-2, 2),
	jsonwire.OptionalInt("max_tokens", func(r *CompletionRequest) **int { return &r.MaxTokens }).Between(0, jsonwire.MaxInteger),
	jsonwire.OptionalInt("n", func(r *CompletionRequest) **int { return &r.N }).Between(1, bounds.Choices),
	jsonwire.OptionalInt("best_of", func(r *CompletionRequest) **int { return &r.BestOf }).Between(0, 20),
	jsonwire.OptionalInt("logprobs", func(r *CompletionRequest) **int { return &r.Logprobs }).Between(0, 5),
	jsonwire.Bool("echo", func(r *CompletionRequest) *bool { return &r.Echo }),
	jsonwire.Member("stop", func(r *CompletionRequest) *llm.StringList { return &r.Stop }, stringListJSON),
	jsonwire.Extra(func(r *CompletionRequest) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r. What is nil or empty is left out.
func (r CompletionRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(completionRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *CompletionRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, completionRequestJSON, r)
}

// A CompletionPrompt holds the prompts of a [CompletionRequest]. Exactly one of its fields is not
// nil. Its JSON is that of an [llm.EmbeddingInput].
type CompletionPrompt struct {
	Texts  []string // may be empty
	Tokens [][]int  // each prompt as its token numbers
}

// Len returns the number of prompts.
func (p CompletionPrompt) Len() int { return llm.EmbeddingInput(p).Len() }

// MarshalJSON encodes p. A single prompt is encoded without an array around it.
func (p CompletionPrompt) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(completionPromptJSON, &p)
}

// UnmarshalJSON decodes prompts without checking them.
func (p *CompletionPrompt) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, completionPromptJSON, p)
}

var completionPromptJSON jsonwire.Type[CompletionPrompt] = completionPromptType{}

type completionPromptType struct{}

func (completionPromptType) IsZero(p *CompletionPrompt) bool {
	return embeddingInputJSON.IsZero((*llm.EmbeddingInput)(p))
}

func (completionPromptType) Append(b []byte, p *CompletionPrompt) ([]byte, error) {
	return embeddingInputJSON.Append(b, (*llm.EmbeddingInput)(p))
}

func (completionPromptType) Decode(d *jsonwire.Decoder, p *CompletionPrompt) {
	embeddingInputJSON.Decode(d, (*llm.EmbeddingInput)(p))
}

// Validate returns an *Error for the first parameter that the format does not allow. Functions that
// decode requests call it: see [BindCompletions].
func (r *CompletionRequest) Validate() error {
	switch p := &r.Prompt; {
	case r.Model == "":
		return invalid.Missing("model")
	case p.Texts == nil && p.Tokens == nil:
		return invalid.Missing("prompt")
	case p.Len() == 0:
		return invalid.EmptyArray("prompt")
	case p.Len() > bounds.EmbeddingInputs:
		return invalid.LongArray("prompt", bounds.EmbeddingInputs, p.Len())
	}
	for i, tokens := range r.Prompt.Tokens {
		if len(tokens) == 0 {
			return invalid.EmptyArray(param.Path("prompt", i, ""))
		}
	}
	if err := completionRequestJSON.Check(r); err != nil {
		return invalid.JSON(err)
	}
	switch n := r.Choices() / r.Prompt.Len(); {
	case r.Choices() > maxCompletions:
		return invalid.Param("invalid_value", "n", "Invalid 'n': %d choices for each of %d prompts are more than %d.", n, r.Prompt.Len(), maxCompletions)
	case r.BestOf != nil && *r.BestOf > 0 && *r.BestOf < n:
		return invalid.Param("invalid_value", "best_of", "Invalid 'best_of': it must not be less than 'n', which is %d.", n)
	case len(r.Stop) > bounds.Stops:
		return invalid.LongArray("stop", bounds.Stops, len(r.Stop))
	}
	return nil
}

// Choices returns the number of choices that the client asked for, of all prompts together.
func (r *CompletionRequest) Choices() int {
	if r.N == nil {
		return r.Prompt.Len()
	}
	return *r.N * r.Prompt.Len()
}

// TokenLimit returns the number of tokens that a choice may have, and whether the client set a
// limit.
func (r *CompletionRequest) TokenLimit() (n int, ok bool) {
	if r.MaxTokens == nil {
		return 0, false
	}
	return *r.MaxTokens, true
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *CompletionRequest) EndUser() string { return param.EndUser(r.Extra) }

func (r *CompletionRequest) describe(d *description) {
	limit, _ := r.TokenLimit()
	d.stream = r.Stream
	d.params = RequestParams{
		MaxTokens: limit, Choices: r.Choices(), Messages: r.Prompt.Len(), Temperature: d.float(r.Temperature), TopP: d.float(r.TopP),
		PresencePenalty: d.float(r.PresencePenalty), FrequencyPenalty: d.float(r.FrequencyPenalty),
		TopK: decodeNumber[float64](r.Extra["top_k"]), Seed: decodeNumber[int](r.Extra["seed"]), Stop: slices.Clone(r.Stop),
	}
}

func (r *CompletionRequest) modelName() string { return r.Model }

func (r *CompletionRequest) extra() llm.Extra { return r.Extra }

func (r *CompletionRequest) attempts() int {
	if r.BestOf == nil {
		return r.Choices()
	}
	return max(r.Choices(), *r.BestOf*r.Prompt.Len())
}

func (r *CompletionRequest) limitTokens(n int) {
	if r.MaxTokens != nil {
		n = min(n, *r.MaxTokens)
	}
	r.MaxTokens = &n
}

func (r *CompletionRequest) echoBytes() int {
	longest := 0
	for _, text := range r.Prompt.Texts {
		longest = max(longest, len(text))
	}
	for _, tokens := range r.Prompt.Tokens {
		longest = max(longest, maxCompletionBytes(len(tokens)))
	}
	if !r.Echo {
		return 0
	}
	return longest
}

func (r *CompletionRequest) countPrompt(c tokens.Estimator) int { return countCompletion(c, r) }

// countCompletion counts the tokens of a request to complete prompts. A model reads the suffix once with
// each prompt.
func countCompletion(c tokens.Estimator, r *CompletionRequest) int {
	n := c.Label(r.Model) + c.Extra(r.Extra) + max(r.Prompt.Len(), 1)*c.Text(r.Suffix)
	for _, text := range r.Prompt.Texts {
		n += c.Text(text)
	}
	for _, tokens := range r.Prompt.Tokens {
		n += len(tokens)
	}
	for _, s := range r.Stop {
		n += c.Label(s)
	}
	if o := r.StreamOptions; o != nil {
		n += c.Extra(o.Extra)
	}
	return n
}

func (r *CompletionRequest) asChat() *llm.ChatRequest {
	chat := new(llm.ChatRequest)
	for _, text := range slices.Concat(r.Prompt.Texts, []string{r.Suffix}) {
		if text != "" {
			chat.Messages = append(chat.Messages, llm.Message{Role: llm.RoleUser, Content: llm.Text(text)})
		}
	}
	return chat
}

func (r *CompletionRequest) send(ctx context.Context, b Backend) llm.ChatStream {
	return streamAbility(ctx, b, Completer.Complete, r)
}

var completionsOperation = operation{name: OperationCompletions, scope: ScopeCompletions, supportedBy: Has[Completer], output: OutputText}

// BindCompletions binds a route to the completion of prompts, with [ScopeCompletions]. decode checks
// the request by [CompletionRequest.Validate] and returns the encoder of its reply. The encoder gets
// what that of a chat gets. If the Backend is no [Completer], the client gets a 404. See "Protocols"
// in the package documentation.
func BindCompletions(decode func(ctx context.Context, r *http.Request, body []byte) (*CompletionRequest, ChatEncoder, error)) Binding {
	mustBeSet(decode != nil)
	return completionsOperation.bind(serveGeneration(decode, func(r *CompletionRequest) generation { return r }))
}

// decodeTextCompletion decodes POST /v1/completions.
func decodeTextCompletion(ctx context.Context, _ *http.Request, body []byte) (*CompletionRequest, ChatEncoder, error) {
	req := new(CompletionRequest)
	if err := decodeChecked(ctx, body, completionRequestJSON, req, &req.Extra); err != nil {
		return nil, nil, err
	}
	if !req.Stream {
		return req, new(wholeTextCompletion), nil
	}
	e := new(textCompletionEncoder)
	e.showUsage = req.StreamOptions != nil && req.StreamOptions.IncludeUsage
	return req, e, nil
}
