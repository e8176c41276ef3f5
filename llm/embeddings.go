package llm

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/param"
)

// An EmbeddingRequest is the body of POST /v1/embeddings. A Backend gets 1 to 2048
// inputs, none of them empty, and at most 1,048,576 token numbers.
type EmbeddingRequest struct {
	Model          string         `json:"model"`
	Input          EmbeddingInput `json:"input,omitzero"`
	Dimensions     *int           `json:"dimensions,omitzero"`      // of the vectors, at least 1; nil for the model's own
	EncodingFormat string         `json:"encoding_format,omitzero"` // float or base64; a Backend may ignore it
	Extra          Extra          `json:"-"`
}

var embeddingRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *EmbeddingRequest) *string { return &r.Model }).Always(),
	jsonwire.Member("input", func(r *EmbeddingRequest) *EmbeddingInput { return &r.Input }, embeddingInputJSON),
	jsonwire.OptionalInt("dimensions", func(r *EmbeddingRequest) **int { return &r.Dimensions }).Between(1, math.MaxInt32),
	jsonwire.String("encoding_format", func(r *EmbeddingRequest) *string { return &r.EncodingFormat }),
	jsonwire.Extra(func(r *EmbeddingRequest) *Extra { return &r.Extra }),
)

// MarshalJSON encodes r. What is nil or empty is left out.
func (r EmbeddingRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(embeddingRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *EmbeddingRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, embeddingRequestJSON, r)
}

// An EmbeddingInput holds the inputs of an [EmbeddingRequest]. Exactly one of its
// fields is not nil.
//
// In JSON it is an array of strings, or of arrays of token numbers. A single input
// may be a string, or an array of token numbers.
type EmbeddingInput struct {
	Texts  []string
	Tokens [][]int // each input as its token numbers
}

// Len returns the number of inputs.
func (in EmbeddingInput) Len() int { return len(in.Texts) + len(in.Tokens) }

// MarshalJSON encodes in. A single input is encoded without an array around it.
func (in EmbeddingInput) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(embeddingInputJSON, &in)
}

// UnmarshalJSON decodes an input without checking it. Null is the zero value.
func (in *EmbeddingInput) UnmarshalJSON(data []byte) error {
	*in = EmbeddingInput{}
	return param.UnmarshalRequest(data, embeddingInputJSON, in)
}

var embeddingInputJSON jsonwire.Type[EmbeddingInput] = embeddingInputType{}

type embeddingInputType struct{}

func (embeddingInputType) IsZero(in *EmbeddingInput) bool { return in.Texts == nil && in.Tokens == nil }

func (embeddingInputType) Append(b []byte, in *EmbeddingInput) ([]byte, error) {
	switch {
	case len(in.Texts) == 1:
		return jsonwire.AppendString(b, in.Texts[0]), nil
	case in.Texts != nil:
		return jsonwire.AppendStrings(b, in.Texts)
	case len(in.Tokens) == 1:
		return jsonwire.AppendInts(b, in.Tokens[0])
	case in.Tokens != nil:
		return jsonwire.AppendArray(b, in.Tokens, jsonwire.AppendInts)
	}
	return append(b, "null"...), nil
}

func (embeddingInputType) Decode(d *jsonwire.Decoder, in *EmbeddingInput) {
	switch d.Kind() {
	case '"':
		in.Texts = []string{d.String()}
	case '[':
		in.decodeArray(d)
	default:
		d.Mismatch("one of a string or array of strings or token numbers")
	}
}

// decodeArray decodes an array. The kind of its first element decides what it is
// an array of.
func (in *EmbeddingInput) decodeArray(d *jsonwire.Decoder) {
	t := tokenDecoder{d: d, param: d.Path()}
	var kind byte
	d.UnboundedArray(func(i int) {
		next := d.Kind()
		if i == 0 {
			kind = next
		}
		switch {
		case next != '"' && next != '0' && next != '[':
			d.Mismatch("one of a string, token number or array of token numbers")
		case next != kind:
			d.Fail(
				param.Invalid(
					"invalid_type",
					t.param,
					"Invalid type for '%s': expected strings, token numbers or arrays of token numbers, but got a mixture.",
					t.param,
				),
			)
		case kind == '0':
			if in.Tokens == nil {
				in.Tokens = make([][]int, 1)
			}
			t.decode(&in.Tokens[0])
		case !d.CountElement(i, bounds.EmbeddingInputs):
		case kind == '"':
			in.Texts = append(in.Texts, d.String())
		default:
			tokens := []int{}
			d.UnboundedArray(func(int) { t.decode(&tokens) })
			in.Tokens = append(in.Tokens, tokens)
		}
	})
	if in.Tokens == nil && in.Texts == nil {
		in.Texts = []string{}
	}
}

// A tokenDecoder decodes the token numbers of an input, which is the parameter param.
type tokenDecoder struct {
	d     *jsonwire.Decoder
	param string
	total int
}

// decode appends a token number to list.
func (t *tokenDecoder) decode(list *[]int) {
	if t.total++; t.total > bounds.EmbeddingTokens {
		t.d.Fail(
			param.Invalid(
				"array_above_max_length",
				t.param,
				"Invalid '%s': too many tokens. Expected at most %d tokens.",
				t.param,
				bounds.EmbeddingTokens,
			),
		)
		return
	}
	n := t.d.Int()
	if n < 0 {
		t.d.MismatchGot("a token number", "a negative number")
	}
	*list = append(*list, int(n))
}

// Validate returns an *Error for the first parameter that the format does not allow.
// Functions that decode requests call it: see BindEmbeddings.
func (r *EmbeddingRequest) Validate() error { return asError(r.validate()) }

func (r *EmbeddingRequest) validate() error {
	switch {
	case r.Model == "":
		return param.Missing("model")
	case r.Input.Texts == nil && r.Input.Tokens == nil:
		return param.Missing("input")
	case r.Input.Len() == 0:
		return param.EmptyArray("input")
	}
	for i, text := range r.Input.Texts {
		switch {
		case text != "":
		case len(r.Input.Texts) == 1:
			return param.EmptyString("input")
		default:
			return param.EmptyString(param.Path("input", i, ""))
		}
	}
	for i, tokens := range r.Input.Tokens {
		if len(tokens) == 0 {
			return param.EmptyArray(param.Path("input", i, ""))
		}
	}
	if err := embeddingRequestJSON.Check(r); err != nil {
		return param.FromJSON(err)
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
		return nil
	}
	return param.Value("encoding_format", r.EncodingFormat, "float", "base64")
}

// An EmbeddingResponse has a vector for each input, in their order. In JSON the vectors are arrays
// of numbers; clients get the encoding_format that they asked for. It is decoded leniently: see
// [ChatChunk].
type EmbeddingResponse struct {
	Model   string      `json:"model"`          // if empty, the request's
	Vectors [][]float32 `json:"data"`           // with an object around each
	Usage   *Usage      `json:"usage,omitzero"` // without completion_tokens; nil if it is not known
	Extra   Extra       `json:"-"`

	base64 bool // encode vectors as base64: see AppendJSON
}

var embeddingResponseJSON = jsonwire.NewObject(
	jsonwire.Constant[EmbeddingResponse]("object", membername.ObjectList),
	jsonwire.Func("data", (*EmbeddingResponse).decodeVectors, (*EmbeddingResponse).appendVectors),
	jsonwire.String("model", func(r *EmbeddingResponse) *string { return &r.Model }).Always(),
	jsonwire.Pointer("usage", func(r *EmbeddingResponse) **Usage { return &r.Usage }, usageJSON).
		AppendWith(func(r *EmbeddingResponse, b []byte) ([]byte, error) { return embeddingUsageJSON.Append(b, r.Usage) }),
	jsonwire.Extra(func(r *EmbeddingResponse) *Extra { return &r.Extra }),
).Reserve(membername.ObjectError).AfterDecode(func(r *EmbeddingResponse) { r.Usage = nilIfZero(r.Usage) })

// embeddingUsageJSON is the JSON of the Usage of embeddings.
var embeddingUsageJSON = jsonwire.NewObject(
	jsonwire.Int("prompt_tokens", func(u *Usage) *int { return &u.PromptTokens }).Always(),
	totalTokensField,
	jsonwire.Struct(
		"prompt_tokens_details",
		func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails },
		promptTokensDetailsJSON,
	),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

// MarshalJSON encodes r.
func (r EmbeddingResponse) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(embeddingResponseJSON, &r)
}

// AppendJSON appends to b what MarshalJSON returns, with the vectors in the encoding format that a
// request has asked for: as base64 if it is "base64". If there is an error, it returns nil.
func (r *EmbeddingResponse) AppendJSON(b []byte, encodingFormat string) ([]byte, error) {
	encoded := *r
	encoded.base64 = encodingFormat == "base64"
	return jsonwire.AppendValue(b, embeddingResponseJSON, &encoded)
}

// UnmarshalJSON decodes a response leniently. Its vectors may be numbers or base64.
func (r *EmbeddingResponse) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, embeddingResponseJSON, r)
}

// An embedding is one of the vectors of a response.
type embedding struct {
	index  int
	vector vector
}

var embeddingJSON = jsonwire.NewObject(
	jsonwire.Constant[embedding]("object", "embedding"),
	jsonwire.Int("index", func(e *embedding) *int { return &e.index }).Always(),
	jsonwire.Member("embedding", func(e *embedding) *vector { return &e.vector }, vectorJSON).Always(),
).InitElement(func(e *embedding, i int) { e.index = i })

var embeddingsJSON = jsonwire.ListOf(embeddingJSON, 0)

func (r *EmbeddingResponse) appendVectors(b []byte) ([]byte, error) {
	list := make([]embedding, len(r.Vectors))
	for i, numbers := range r.Vectors {
		list[i] = embedding{i, vector{numbers, r.base64}}
	}
	return embeddingsJSON.Append(b, &list)
}

func (r *EmbeddingResponse) decodeVectors(d *jsonwire.Decoder) {
	var list []embedding
	embeddingsJSON.Decode(d, &list)
	for _, e := range list {
		if e.index < 0 || e.index >= bounds.EmbeddingInputs {
			d.Fail(errors.New("the index of a vector is out of range"))
			return
		}
		for len(r.Vectors) <= e.index {
			r.Vectors = append(r.Vectors, nil)
		}
		r.Vectors[e.index] = e.vector.numbers
	}
}

// EndUser returns the end user whom the client names, as that of a [ChatRequest].
func (r *EmbeddingRequest) EndUser() string { return param.EndUser(r.Extra) }

// A vector is a vector on the wire: an array of numbers, or the base64 of its
// little-endian float32s, for which openai-python and openai-node ask by default.
type vector struct {
	numbers []float32
	base64  bool
}

var vectorJSON jsonwire.Type[vector] = vectorType{}

type vectorType struct{}

func (vectorType) IsZero(v *vector) bool { return v.numbers == nil }

func (vectorType) Append(b []byte, v *vector) ([]byte, error) {
	if v.base64 {
		return v.appendBase64(b)
	}
	return jsonwire.AppendArray(b, v.numbers, func(b []byte, f float32) ([]byte, error) { return jsonwire.AppendFloat(b, float64(f), 32) })
}

func (v *vector) appendBase64(b []byte) ([]byte, error) {
	raw := make([]byte, 0, 4*len(v.numbers))
	for _, f := range v.numbers {
		if f != f || math.IsInf(float64(f), 0) {
			return b, errors.New("a number is not finite")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	b = base64.StdEncoding.AppendEncode(append(b, '"'), raw)
	return append(b, '"'), nil
}

func (vectorType) Decode(d *jsonwire.Decoder, v *vector) {
	switch d.Kind() {
	case '"':
		raw := d.Base64()
		if len(raw)%4 != 0 {
			d.Fail(errors.New("a vector is not base64 of 32-bit numbers"))
			return
		}
		v.numbers = make([]float32, len(raw)/4)
		for i := range v.numbers {
			v.numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case '[':
		v.numbers = []float32{}
		d.UnboundedArray(func(int) {
			var f float64 // 0 for null
			if !d.Null() {
				f = d.Float(32)
			}
			v.numbers = append(v.numbers, float32(f))
		})
	default:
		d.Mismatch("an array of numbers")
	}
}
