package llmhttp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

const maxInputs = 2048

// An EmbeddingRequest is the body of POST /v1/embeddings. Those a Handler
// passes to a Backend are checked: Input is one of a string, an array of
// strings, an array of token numbers, and an array of such arrays, with 1 to
// 2048 inputs, none of them empty.
type EmbeddingRequest struct {
	Model          string
	Input          json.RawMessage
	Dimensions     *int   // of the vectors, at least 1; nil for the model's own
	EncodingFormat string // float or base64; of no concern to a Backend
	Extra          Extra
}

// Texts returns the inputs as texts. It fails if they are token numbers.
func (r *EmbeddingRequest) Texts() ([]string, error) {
	var list StringList
	if err := list.UnmarshalJSON(r.Input); err != nil {
		return nil, &Error{
			Status: 400, Code: "invalid_type", Param: "input",
			Message: "Invalid type for 'input': this model takes a string or an array of strings.",
			Err:     err,
		}
	}
	return list, nil
}

// Tokens returns the inputs as token numbers. It fails if they are texts.
func (r *EmbeddingRequest) Tokens() ([][]int, error) {
	var many [][]int
	if err := json.Unmarshal(r.Input, &many); err == nil {
		return many, nil
	}
	var one []int
	if err := json.Unmarshal(r.Input, &one); err != nil {
		return nil, errors.New("llmhttp: the inputs are texts")
	}
	return [][]int{one}, nil
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r EmbeddingRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a request without checking it.
func (r *EmbeddingRequest) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *EmbeddingRequest) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("model")
	e.String(r.Model)
	e.RawMember("input", r.Input)
	e.IntMember("dimensions", r.Dimensions)
	e.StringMember("encoding_format", r.EncodingFormat)
	e.Extra(r.Extra, "model", "input", "dimensions", "encoding_format")
	e.Token('}')
}

func (r *EmbeddingRequest) decode(d *jsonwire.Decoder) {
	var numbers *jsonwire.Numbers
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "model":
			r.Model = d.OptString()
		case "input":
			r.Input = decodeRaw(d)
		case "dimensions":
			r.Dimensions = d.IntPtr(&numbers)
		case "encoding_format":
			r.EncodingFormat = d.OptString()
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// inputStats are what the Handler needs to know of an Input.
type inputStats struct {
	count  int // how many inputs
	bytes  int // of the texts
	tokens int // where the inputs are token numbers
}

// readInput checks an Input and counts what is in it.
func readInput(raw json.RawMessage) (inputStats, error) {
	var s inputStats
	var err error
	d := jsonwire.NewDecoder(raw)
	switch d.Kind() {
	case '"':
		s.count, s.bytes = 1, len(d.StringView())
		if s.bytes == 0 {
			return s, emptyString("input")
		}
	case '[':
		a := d.Sequence()
		for a.Next() {
			switch d.Kind() {
			case '"':
				n := len(d.StringView())
				if n == 0 {
					err = emptyString(path("input", a.Index(), ""))
				}
				s.count++
				s.bytes += n
			case '[':
				before := s.tokens
				for t := d.Sequence(); t.Next(); s.tokens++ {
					checkToken(d)
				}
				if s.tokens == before && !d.Failed() {
					err = emptyArray(path("input", a.Index(), ""))
				}
				s.count++
			default:
				checkToken(d)
				s.tokens++
			}
			if err != nil {
				return s, err
			}
		}
		switch {
		case d.Failed():
		case a.Index() < 0:
			return s, emptyArray("input")
		case s.count == 0:
			s.count = 1 // one input of token numbers
		case s.count <= a.Index(), s.bytes > 0 && s.tokens > 0:
			return s, badRequest("invalid_type", "input", "Invalid type for 'input': expected strings, token numbers or arrays of token numbers, but got a mixture.")
		case s.count > maxInputs:
			return s, longArray("input", maxInputs, s.count)
		}
	default:
		d.Mismatch("one of a string or array of strings or token numbers")
	}
	if err := d.Finish(); err != nil {
		err.Path = "input" + err.Path
		return s, decodeError(err)
	}
	return s, nil
}

// checkToken reads a token number.
func checkToken(d *jsonwire.Decoder) {
	if d.Int() < 0 {
		d.Invalid("a token number", "a negative number")
	}
}

func (r *EmbeddingRequest) check() (inputStats, error) {
	if r.Model == "" {
		return inputStats{}, missing("model")
	}
	if r.Input == nil {
		return inputStats{}, missing("input")
	}
	stats, err := readInput(r.Input)
	if err != nil {
		return stats, err
	}
	if err := checkInt("dimensions", r.Dimensions, 1, math.MaxInt32); err != nil {
		return stats, err
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
		return stats, nil
	}
	return stats, invalidValue("encoding_format", r.EncodingFormat, "float", "base64")
}

// An EmbeddingResponse has a vector for each input, in their order. In JSON
// the vectors are arrays of numbers; the Handler encodes them as the client
// asked.
type EmbeddingResponse struct {
	Model   string // if empty, the request's
	Vectors [][]float32
	Usage   *Usage // nil if it is not known
	Extra   Extra
}

// MarshalJSON encodes r.
func (r EmbeddingResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a response, whose vectors may be numbers or base64.
func (r *EmbeddingResponse) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *EmbeddingResponse) encode(e *jsonwire.Encoder) { r.encodeAs(e, "float") }

func (r *EmbeddingResponse) encodeAs(e *jsonwire.Encoder, format string) {
	e.Token('{')
	e.Name("object")
	e.String("list")
	e.Name("data")
	e.Token('[')
	for i, v := range r.Vectors {
		e.Element()
		e.Literal(`{"object":"embedding","index":`)
		e.Int(int64(i))
		e.Literal(`,"embedding":`)
		if format == "base64" {
			encodeBase64(e, v)
		} else {
			e.Token('[')
			for _, f := range v {
				e.Element()
				e.Float(float64(f), 32)
			}
			e.Token(']')
		}
		e.Token('}')
	}
	e.Token(']')
	e.Name("model")
	e.String(r.Model)
	if u := r.Usage; u != nil {
		e.Name("usage")
		e.Token('{')
		e.Name("prompt_tokens")
		e.Int(int64(u.PromptTokens))
		e.Name("total_tokens")
		e.Int(int64(u.total()))
		e.Extra(u.Extra, usageMembers...)
		e.Token('}')
	}
	e.Extra(r.Extra, "object", "data", "model", "usage")
	e.Token('}')
}

// encodeBase64 writes v as the base64 of its little-endian float32s, which is
// what openai-python and openai-node ask for unless told otherwise.
func encodeBase64(e *jsonwire.Encoder, v []float32) {
	raw := make([]byte, 0, 4*len(v))
	for _, f := range v {
		if f != f || math.IsInf(float64(f), 0) {
			e.Float(float64(f), 32) // fails
			return
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	e.Token('"')
	e.Buf = base64.StdEncoding.AppendEncode(e.Buf, raw)
	e.Token('"')
}

func (r *EmbeddingResponse) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "object":
			d.Skip()
		case "data":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next(); {
				r.decodeVector(d, a.Index())
			}
		case "model":
			r.Model = d.OptString()
		case "usage":
			r.Usage = decodeUsage(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// decodeVector reads an entry of data into its place, which is index if the
// entry does not say.
func (r *EmbeddingResponse) decodeVector(d *jsonwire.Decoder, index int) {
	var v []float32
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			if !d.Null() {
				index = d.Int()
			}
		case "embedding":
			if d.Kind() != '"' {
				for a := d.Sequence(); a.Next(); {
					v = append(v, float32(d.Float()))
				}
				continue
			}
			raw, err := base64.StdEncoding.AppendDecode(nil, d.StringView())
			if err != nil || len(raw)%4 != 0 {
				d.Invalid("base64 of 32-bit numbers", "another string")
				continue
			}
			v = make([]float32, len(raw)/4)
			for i := range v {
				v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			}
		default:
			d.Skip()
		}
	}
	if index < 0 || index > maxInputs {
		d.Mismatch("an index")
		return
	}
	for len(r.Vectors) <= index {
		r.Vectors = append(r.Vectors, nil)
	}
	r.Vectors[index] = v
}

// embeddings serves POST /v1/embeddings.
func (x *exchange) embeddings() error {
	req := new(EmbeddingRequest)
	if err := x.readJSON(req); err != nil {
		return err
	}
	stats, err := req.check()
	if err != nil {
		return err
	}
	if err := x.useModel(req.Model); err != nil {
		return err
	}
	if x.prompt, err = x.countInput(req, stats); err != nil {
		return err
	}
	if err := x.admit(max(x.prompt, 1)); err != nil {
		return err
	}
	if err := x.work(); err != nil {
		return err
	}
	format := req.EncodingFormat
	resp, err := x.h.backend.Embed(&x.ctx, req)
	if err != nil {
		return x.backendError(err)
	}
	if resp != nil { // it is to be paid for, whoever is left to see it
		x.reported = resp.Usage
	}
	if err := x.cause(); err != nil {
		return err
	}
	if resp == nil || len(resp.Vectors) != stats.count {
		return errors.New("llmhttp: the Backend returned another number of vectors than there were inputs")
	}
	x.settle()
	answer := *resp
	answer.Usage = &x.record.Usage
	if answer.Model == "" {
		answer.Model = x.record.Model
	}
	return x.reply(encoderFunc(func(e *jsonwire.Encoder) { answer.encodeAs(e, format) }))
}

// countInput estimates the tokens of the inputs.
func (x *exchange) countInput(req *EmbeddingRequest, stats inputStats) (int, error) {
	if x.h.opts.CountTokens == nil || stats.tokens > 0 {
		return stats.tokens + estimate(stats.bytes), nil
	}
	texts, err := req.Texts()
	n := 0
	for _, text := range texts {
		n += x.count(text)
	}
	return n, err
}
