package llmhttp

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxInputs = 2048
	maxTokens = 1 << 20 // token numbers of all inputs
)

// An EmbeddingRequest is the body of POST /v1/embeddings. A Handler checks requests
// before it passes them to a Backend: there are 1 to 2048 inputs, none of them
// empty, and at most 1,048,576 token numbers.
type EmbeddingRequest struct {
	Model          string         `json:"model"`
	Input          EmbeddingInput `json:"input,omitzero"`
	Dimensions     *int           `json:"dimensions,omitzero"`      // of the vectors, at least 1; nil for the model's own
	EncodingFormat string         `json:"encoding_format,omitzero"` // float or base64; a Backend may ignore it
	Extra          Extra          `json:",embed"`
}

func (r *EmbeddingRequest) fields() any {
	type fields EmbeddingRequest
	return (*fields)(r)
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r EmbeddingRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a request without checking it.
func (r *EmbeddingRequest) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, r) }

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
func (in EmbeddingInput) MarshalJSON() ([]byte, error) { return marshal(&in) }

// UnmarshalJSON decodes an input without checking it. Null is the zero value.
func (in *EmbeddingInput) UnmarshalJSON(data []byte) error {
	*in = EmbeddingInput{}
	return unmarshalRequest(data, in)
}

func encodeEmbeddingInput(enc *jsontext.Encoder, in *EmbeddingInput) error {
	switch {
	case len(in.Texts) == 1:
		return jsonv2.MarshalEncode(enc, in.Texts[0])
	case in.Texts != nil:
		return jsonv2.MarshalEncode(enc, in.Texts)
	case len(in.Tokens) == 1:
		return jsonv2.MarshalEncode(enc, in.Tokens[0])
	case in.Tokens != nil:
		return jsonv2.MarshalEncode(enc, in.Tokens)
	}
	return enc.WriteToken(jsontext.Null)
}

func (d *decoder) embeddingInput(dec *jsontext.Decoder, in *EmbeddingInput) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '"':
		in.Texts = make([]string, 1)
		return jsonv2.UnmarshalDecode(dec, &in.Texts[0])
	case '[':
		return in.decodeArray(d, dec)
	}
	return mismatch(dec, "one of a string or array of strings or token numbers")
}

// decodeArray decodes an array. The kind of its first element decides what it is
// an array of.
func (in *EmbeddingInput) decodeArray(d *decoder, dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	where, kind := dec.StackPointer(), dec.PeekKind()
	switch kind {
	case ']':
		in.Texts = []string{}
	case '0':
		in.Tokens = make([][]int, 1)
	}
	tokens := 0
	for n := 0; dec.PeekKind() != ']'; n++ {
		err := checkInput(dec, where, kind)
		switch {
		case err != nil:
		case kind == '0':
			err = decodeToken(dec, &in.Tokens[0], &tokens, where)
		case kind == '[':
			if err = d.element(dec, n, maxInputs); err == nil {
				in.Tokens = append(in.Tokens, []int{})
				err = decodeTokens(dec, &in.Tokens[n], &tokens, where)
			}
		default:
			if err = d.element(dec, n, maxInputs); err == nil {
				in.Texts = append(in.Texts, "")
				err = jsonv2.UnmarshalDecode(dec, &in.Texts[n])
			}
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// checkInput checks the kind of the next input of the array at where.
func checkInput(dec *jsontext.Decoder, where jsontext.Pointer, kind jsontext.Kind) error {
	isInput := func(kind jsontext.Kind) bool { return kind == '"' || kind == '0' || kind == '[' }
	next := dec.PeekKind()
	switch {
	case !isInput(next):
		return mismatch(dec, "one of a string, token number or array of token numbers")
	case next != kind:
		return newFaultAt(where, func(param string) *Error {
			return badRequest("invalid_type", param, "Invalid type for '%s': expected strings, token numbers or arrays of token numbers, but got a mixture.", param)
		})
	}
	return nil
}

// decodeTokens decodes an array of token numbers.
func decodeTokens(dec *jsontext.Decoder, list *[]int, total *int, where jsontext.Pointer) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := decodeToken(dec, list, total, where); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// decodeToken appends a token number to a list. Total counts those of the input,
// which is at where.
func decodeToken(dec *jsontext.Decoder, list *[]int, total *int, where jsontext.Pointer) error {
	if *total++; *total > maxTokens {
		return newFaultAt(where, func(param string) *Error {
			return badRequest("array_above_max_length", param, "Invalid '%s': too many tokens. Expected at most %d tokens.", param, maxTokens)
		})
	}
	var token int
	if err := strictInteger(dec, &token); err != nil {
		return err
	}
	if token < 0 {
		return newFault(dec, func(param string) *Error { return invalidType(param, "a token number", "a negative number") })
	}
	*list = append(*list, token)
	return nil
}

func (r *EmbeddingRequest) check() error {
	switch {
	case r.Model == "":
		return missing("model")
	case r.Input.Texts == nil && r.Input.Tokens == nil:
		return missing("input")
	case r.Input.Len() == 0:
		return emptyArray("input")
	}
	for i, text := range r.Input.Texts {
		switch {
		case text != "":
		case len(r.Input.Texts) == 1:
			return emptyString("input")
		default:
			return emptyString(path("input", i, ""))
		}
	}
	for i, tokens := range r.Input.Tokens {
		if len(tokens) == 0 {
			return emptyArray(path("input", i, ""))
		}
	}
	if err := checkInt("dimensions", r.Dimensions, 1, math.MaxInt32); err != nil {
		return err
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
		return nil
	}
	return invalidValue("encoding_format", r.EncodingFormat, "float", "base64")
}

// An EmbeddingResponse has a vector for each input, in their order. In JSON
// the vectors are arrays of numbers; the Handler uses the encoding_format that the
// client asked for. It is decoded leniently: see [ChatChunk].
type EmbeddingResponse struct {
	Model   string      `json:"model"` // if empty, the request's
	Vectors [][]float32 `json:"-"`     // in the member data
	Usage   *Usage      `json:"-"`     // in the member usage, without completion_tokens; nil if it is not known
	Extra   Extra       `json:",embed"`

	base64 bool // encode vectors as base64
}

type embeddingResponseFields EmbeddingResponse

// An embeddingResponse is the JSON of an EmbeddingResponse, whose usage is a U.
type embeddingResponse[U any] struct {
	Object   string                   `json:"object"`
	Data     []embedding              `json:"data"`
	Response *embeddingResponseFields `json:",embed"`
	Usage    *U                       `json:"usage,omitzero"`
}

// An embeddingUsage is the Usage of embeddings as it is encoded.
type embeddingUsage struct {
	PromptTokens            int                     `json:"prompt_tokens"`
	CompletionTokens        int                     `json:"-"`
	TotalTokens             int                     `json:"total_tokens"`
	PromptTokensDetails     PromptTokensDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails CompletionTokensDetails `json:"-"`
	Extra                   Extra                   `json:",embed"`
}

func (u *embeddingUsage) fields() any {
	type fields embeddingUsage
	return (*fields)(u)
}

// An embedding is one of the vectors of a response.
type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding vector `json:"embedding"`
}

func (e *embedding) fields() any {
	type fields embedding
	return (*fields)(e)
}

func (e *embedding) place(i int) { e.Index = i }

// A vector is a vector on the wire: an array of numbers, or the base64 of its
// little-endian float32s, which is what openai-python and openai-node ask for
// unless told otherwise.
type vector struct {
	numbers []float32
	base64  bool
}

func (r *EmbeddingResponse) fields() any {
	view := &embeddingResponse[embeddingUsage]{Object: objectList, Response: (*embeddingResponseFields)(r)}
	view.Data = make([]embedding, len(r.Vectors))
	for i, numbers := range r.Vectors {
		view.Data[i] = embedding{Object: objectEmbedding, Index: i, Embedding: vector{numbers, r.base64}}
	}
	if r.Usage != nil {
		u := *r.Usage
		u.TotalTokens = u.total()
		view.Usage = (*embeddingUsage)(&u)
	}
	return view
}

const objectEmbedding = "embedding"

func (r *EmbeddingResponse) decode(d *decoder, dec *jsontext.Decoder) error {
	view := embeddingResponse[Usage]{Response: (*embeddingResponseFields)(r)}
	if err := jsonv2.UnmarshalDecode(dec, &view); err != nil {
		return err
	}
	r.Usage = reported(view.Usage)
	for _, e := range view.Data {
		if e.Index < 0 || e.Index >= maxInputs {
			return errors.New("the index of a vector is out of range")
		}
		for len(r.Vectors) <= e.Index {
			r.Vectors = append(r.Vectors, nil)
		}
		r.Vectors[e.Index] = e.Embedding.numbers
	}
	return nil
}

// MarshalJSON encodes r.
func (r EmbeddingResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a response leniently. Its vectors may be numbers or base64.
func (r *EmbeddingResponse) UnmarshalJSON(data []byte) error { return unmarshalReply(data, r) }

func encodeVector(enc *jsontext.Encoder, v *vector) error {
	if !v.base64 {
		return encodeNumbers(enc, v.numbers)
	}
	raw := make([]byte, 0, 4*len(v.numbers))
	for _, f := range v.numbers {
		if f != f || math.IsInf(float64(f), 0) {
			return errors.New("a number is not finite")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	return jsonv2.MarshalEncode(enc, raw)
}

// encodeNumbers encodes numbers in as few digits as a float32 needs.
func encodeNumbers(enc *jsontext.Encoder, numbers []float32) error {
	b := append(enc.AvailableBuffer(), '[')
	for i, f := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		format := byte('f')
		if abs := math.Abs(float64(f)); abs != 0 && abs < 1e-6 || abs >= 1e21 {
			format = 'e'
		}
		b = strconv.AppendFloat(b, float64(f), format, -1, 32)
	}
	return enc.WriteValue(append(b, ']')) // which fails for what is not finite
}

func (d *decoder) vector(dec *jsontext.Decoder, v *vector) error {
	if dec.PeekKind() != '"' {
		return jsonv2.UnmarshalDecode(dec, &v.numbers)
	}
	var raw []byte
	if err := jsonv2.UnmarshalDecode(dec, &raw); err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return errors.New("a vector is not base64 of 32-bit numbers")
	}
	v.numbers = make([]float32, len(raw)/4)
	for i := range v.numbers {
		v.numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// serveEmbeddings serves POST /v1/embeddings.
func serveEmbeddings(q *request) error {
	req := new(EmbeddingRequest)
	if err := q.readJSON(req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	if err := q.useModel(req.Model); err != nil {
		return err
	}
	q.account.prompt = q.tokens().input(&req.Input)
	if err := q.account.reserve(max(q.account.prompt, 1)); err != nil {
		return err
	}
	if err := q.beginBackendCall(); err != nil {
		return err
	}
	q.account.bill()
	format, inputs := req.EncodingFormat, req.Input.Len()
	resp, err := q.h.backend.Embed(q.life.ctx, req)
	q.res.backendReturned()
	q.account.noteBackendError(err)
	if err != nil {
		return q.life.endedOr(err)
	}
	if resp != nil { // billed even if the client has left
		q.account.reported = resp.Usage
	}
	if err := q.life.ended(); err != nil {
		return err
	}
	if resp == nil || len(resp.Vectors) != inputs {
		return errors.New("llmhttp: the number of vectors that the Backend returned is not the number of inputs")
	}
	q.account.settle()
	answer := *resp
	answer.base64 = format == "base64"
	answer.Usage = &q.account.record.Usage
	if answer.Model == "" {
		answer.Model = q.account.record.Model
	}
	return q.replyJSON(&answer)
}

// input counts the tokens of the inputs of an embedding request.
func (c *tokenCounter) input(in *EmbeddingInput) int {
	n := 0
	for _, text := range in.Texts {
		n += c.text(text)
	}
	for _, tokens := range in.Tokens {
		n += len(tokens)
	}
	return n
}
