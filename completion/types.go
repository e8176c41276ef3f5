package completion

import (
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// The JSON of types of package llm.
var (
	chatChunkJSON      = jsonwire.ObjectOf[llm.ChatChunk]("")
	chatResponseJSON   = jsonwire.ObjectOf[llm.ChatResponse]("")
	chunkChoiceJSON    = jsonwire.ObjectOf[llm.ChunkChoice]("")
	usageJSON          = jsonwire.ObjectOf[llm.Usage]("")
	streamOptionsJSON  = jsonwire.ObjectOf[llm.StreamOptions]("")
	stringListJSON     = jsonwire.TableOf[llm.StringList]("")
	embeddingInputJSON = jsonwire.TableOf[llm.EmbeddingInput]("")
)

// maxCompletions is the number of choices of all prompts together.
const maxCompletions = 2048

// A Request is the body of POST /v1/completions. A Handler checks requests before it
// passes them to a [Completer]: there are 1 to 2048 prompts, and parameters are within their bounds.
//
// A nil pointer means that the client left the choice to the Backend.
type Request struct {
	Model            string             `json:"model"`
	Prompt           Prompt             `json:"prompt,omitzero"`
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

var requestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *Request) *string { return &r.Model }).Always(),
	jsonwire.Member("prompt", func(r *Request) *Prompt { return &r.Prompt }, promptJSON),
	jsonwire.String("suffix", func(r *Request) *string { return &r.Suffix }),
	jsonwire.Bool("stream", func(r *Request) *bool { return &r.Stream }),
	jsonwire.Pointer("stream_options", func(r *Request) **llm.StreamOptions { return &r.StreamOptions }, streamOptionsJSON),
	jsonwire.OptionalFloat("temperature", func(r *Request) **float64 { return &r.Temperature }).Between(0, 2),
	jsonwire.OptionalFloat("top_p", func(r *Request) **float64 { return &r.TopP }).Between(0, 1),
	jsonwire.OptionalFloat("presence_penalty", func(r *Request) **float64 { return &r.PresencePenalty }).Between(-2, 2),
	jsonwire.OptionalFloat("frequency_penalty", func(r *Request) **float64 { return &r.FrequencyPenalty }).Between(-2, 2),
	jsonwire.OptionalInt("max_tokens", func(r *Request) **int { return &r.MaxTokens }).Between(0, jsonwire.MaxInteger),
	jsonwire.OptionalInt("n", func(r *Request) **int { return &r.N }).Between(1, bounds.Choices),
	jsonwire.OptionalInt("best_of", func(r *Request) **int { return &r.BestOf }).Between(0, 20),
	jsonwire.OptionalInt("logprobs", func(r *Request) **int { return &r.Logprobs }).Between(0, 5),
	jsonwire.Bool("echo", func(r *Request) *bool { return &r.Echo }),
	jsonwire.Member("stop", func(r *Request) *llm.StringList { return &r.Stop }, stringListJSON),
	jsonwire.Extra(func(r *Request) *llm.Extra { return &r.Extra }),
)

// MarshalJSON encodes r. What is nil or empty is left out.
func (r Request) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(requestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *Request) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, requestJSON, r)
}

// A Prompt holds the prompts of a [Request]. Exactly one of its fields is not
// nil. Its JSON is that of an [llm.EmbeddingInput].
type Prompt struct {
	Texts  []string // may be empty
	Tokens [][]int  // each prompt as its token numbers
}

// Len returns the number of prompts.
func (p Prompt) Len() int { return llm.EmbeddingInput(p).Len() }

// MarshalJSON encodes p. A single prompt is encoded without an array around it.
func (p Prompt) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(promptJSON, &p)
}

// UnmarshalJSON decodes prompts without checking them.
func (p *Prompt) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, promptJSON, p)
}

var promptJSON jsonwire.Type[Prompt] = promptType{}

type promptType struct{}

func (promptType) IsZero(p *Prompt) bool {
	return embeddingInputJSON.IsZero((*llm.EmbeddingInput)(p))
}

func (promptType) Append(b []byte, p *Prompt) ([]byte, error) {
	return embeddingInputJSON.Append(b, (*llm.EmbeddingInput)(p))
}

func (promptType) Decode(d *jsonwire.Decoder, p *Prompt) {
	embeddingInputJSON.Decode(d, (*llm.EmbeddingInput)(p))
}

// Validate returns an *Error for the first parameter that the format does not allow. Functions that
// decode requests call it: see [Serve].
func (r *Request) Validate() error {
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
	if err := requestJSON.Check(r); err != nil {
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
func (r *Request) Choices() int {
	if r.N == nil {
		return r.Prompt.Len()
	}
	return *r.N * r.Prompt.Len()
}

// TokenLimit returns the number of tokens that a choice may have, and whether the client set a
// limit.
func (r *Request) TokenLimit() (n int, ok bool) {
	if r.MaxTokens == nil {
		return 0, false
	}
	return *r.MaxTokens, true
}

// EndUser returns the end user whom the client names, as that of a [llm.ChatRequest].
func (r *Request) EndUser() string { return param.EndUser(r.Extra) }
