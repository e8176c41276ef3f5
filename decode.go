package llmhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds on what a document may contain besides its size in bytes. They keep a
// small body from becoming much memory.
const (
	maxDepth   = 512     // nested arrays and objects
	maxMembers = 16384   // of an object; objects within one another may have four times as many
	maxValues  = 1 << 16 // elements of arrays that are decoded, and members of Extra

	// maxInteger bounds integers to those that survive a float64, as JSON
	// numbers must in JavaScript, and an int.
	maxInteger = (1<<53 - 1) & math.MaxInt
)

// decodeRequest decodes the body of a request into v, which points to a zero
// value. Its error is an *Error for the client that names the parameter at
// fault.
func decodeRequest(body []byte, v any) error {
	if err := checkBounds(body, false); err != nil {
		return err
	}
	d := strictDecoders.Get().(*decoder)
	err := d.unmarshal(body, v, d.options)
	if err != nil {
		err = d.refusal(body, err)
	}
	d.release()
	strictDecoders.Put(d)
	return err
}

// unmarshalRequest decodes data strictly and replaces *v. As is usual, null
// changes nothing.
func unmarshalRequest[T any](data []byte, v *T) error {
	if string(data) == "null" {
		return nil
	}
	checkListed(v)
	var fresh T
	if err := decodeRequest(data, &fresh); err != nil {
		return fmt.Errorf("llmhttp: decoding %T: %s", v, err.(*Error).Message)
	}
	*v = fresh
	return nil
}

// unmarshalReply decodes data leniently and replaces *v. As is usual, null
// changes nothing.
//
// Most replies need little leniency, so it is forgiving only if the first
// attempt fails: BenchmarkDecodeChunk shows the difference.
func unmarshalReply[T any](data []byte, v *T) error {
	if string(data) == "null" {
		return nil
	}
	var fresh T
	d := lenientDecoders.Get().(*decoder)
	err := d.unmarshal(data, &fresh, d.options)
	if _, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		fresh, d.forgiving = *new(T), true
		err = d.unmarshal(data, &fresh, d.forgivingOptions)
		d.forgiving = false
	}
	d.release()
	lenientDecoders.Put(d)
	if err != nil {
		return fmt.Errorf("llmhttp: decoding %T: %w", v, err)
	}
	*v = fresh
	return nil
}

// A decoder decodes documents, one at a time. A strict decoder refuses what a
// request may not contain. A lenient one makes the best of a reply of another
// server: see [ChatChunk].
type decoder struct {
	strict    bool
	forgiving bool // use forgivingOptions; never if strict
	values    int  // of maxValues, how many the document may still have
	isError   bool // the "object" that was decoded last is "error"
	body      bytes.Buffer
	dec       jsontext.Decoder

	options, forgivingOptions jsonv2.Options

	// ahead looks ahead in the unread part of the body.
	ahead  jsontext.Decoder
	unread bytes.Buffer
}

// The hooks of a decoder refer to the decoder, so decoders are used again.
var (
	strictDecoders  = sync.Pool{New: func() any { return newStrictDecoder() }}
	lenientDecoders = sync.Pool{New: func() any { return newLenientDecoder() }}
)

func newStrictDecoder() *decoder {
	d := &decoder{strict: true}
	d.options = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
		d.commonHooks(),
		jsonv2.UnmarshalFromFunc(strictInteger),
		jsonv2.UnmarshalFromFunc(d.stringList),
		jsonv2.UnmarshalFromFunc(d.embeddingInput),
	))
	return d
}

func newLenientDecoder() *decoder {
	d := new(decoder)
	hooks := jsonv2.JoinUnmarshalers(
		d.commonHooks(),
		jsonv2.UnmarshalFromFunc(lenientInteger[int]),
		jsonv2.UnmarshalFromFunc(d.vector),
		jsonv2.UnmarshalFromFunc(objectHook[chunkObject](d)),
		jsonv2.UnmarshalFromFunc(objectHook[completionObject](d)),
		jsonv2.UnmarshalFromFunc(objectHook[modelObject](d)),
		arrayHook[Choice](d, 0),
		arrayHook[ChunkChoice](d, 0),
		arrayHook[ToolCallDelta](d, 0),
		arrayHook[Image](d, 0),
		arrayHook[embedding](d, 0),
	)
	forgiving := jsonv2.JoinUnmarshalers(
		hooks,
		jsonv2.UnmarshalFromFunc(lenientInteger[int64]),
		jsonv2.UnmarshalFromFunc(lenientBool),
		jsonv2.UnmarshalFromFunc(lenientString[string]),
		jsonv2.UnmarshalFromFunc(lenientString[Role]),
		jsonv2.UnmarshalFromFunc(lenientString[FinishReason]),
		jsonv2.UnmarshalFromFunc(d.deltaContent),
	)
	allow := jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	d.options = jsonv2.JoinOptions(allow, jsonv2.WithUnmarshalers(hooks))
	d.forgivingOptions = jsonv2.JoinOptions(allow, jsonv2.WithUnmarshalers(forgiving))
	return d
}

// commonHooks returns the hooks of strict and lenient decoders.
func (d *decoder) commonHooks() *jsonv2.Unmarshalers {
	hooks := []*jsonv2.Unmarshalers{
		jsonv2.UnmarshalFromFunc(d.raw),
		jsonv2.UnmarshalFromFunc(d.content),
		arrayHook[Message](d, maxMessages),
		arrayHook[Tool](d, maxTools),
		arrayHook[ToolCall](d, maxToolCalls),
		arrayHook[ReasoningDetail](d, maxParts),
	}
	for _, t := range wireTypes {
		hooks = append(hooks, t.unmarshal(d))
	}
	return jsonv2.JoinUnmarshalers(hooks...)
}

var errTrailing = errors.New("there is more than one JSON document")

// unmarshal decodes all of body into v.
func (d *decoder) unmarshal(body []byte, v any, options jsonv2.Options) error {
	d.values, d.isError = maxValues, false
	d.body = *bytes.NewBuffer(body)
	d.dec.Reset(&d.body, options)
	if err := jsonv2.UnmarshalDecode(&d.dec, v); err != nil {
		return err
	}
	if _, err := d.dec.ReadToken(); err != io.EOF {
		return cmp.Or(err, errTrailing)
	}
	return nil
}

// release forgets the document.
func (d *decoder) release() {
	d.body, d.unread = bytes.Buffer{}, bytes.Buffer{}
	d.dec.Reset(&d.body)
	d.ahead.Reset(&d.unread)
}

// A customDecoder is a wireObject whose fields depend on its members.
type customDecoder interface {
	decode(d *decoder, dec *jsontext.Decoder) error
}

// A forgivingDecoder is a wireObject that a forgiving decoder needs more than its
// hooks for.
type forgivingDecoder interface {
	forgive(d *decoder, dec *jsontext.Decoder) error
}

// A finisher is a wireObject with work to do when its members are decoded.
type finisher interface{ finish(d *decoder) error }

// A placed value is an element of an array that has an index of its own. If the
// sender leaves the index out, it is the position.
type placed interface{ place(i int) }

// object decodes a wireObject.
func (d *decoder) object(dec *jsontext.Decoder, v wireObject) error {
	if kind := dec.PeekKind(); kind != '{' {
		switch {
		case dec.StackDepth() == 0 && kind != jsontext.KindInvalid:
			return mismatch(dec, "an object")
		case !d.strict:
			return dec.SkipValue()
		}
	}
	if err := d.members(dec, v); err != nil {
		return err
	}
	if f, ok := v.(finisher); ok {
		return f.finish(d)
	}
	return nil
}

func (d *decoder) members(dec *jsontext.Decoder, v wireObject) error {
	if c, ok := v.(customDecoder); ok {
		return c.decode(d, dec)
	}
	if d.forgiving {
		if f, ok := v.(forgivingDecoder); ok {
			return f.forgive(d, dec)
		}
	}
	return jsonv2.UnmarshalDecode(dec, v.fields())
}

// typeOf returns the member "type" of the next value, or "" if it has none that
// is a string. The value remains to be read.
func (d *decoder) typeOf(dec *jsontext.Decoder) string {
	if dec.PeekKind() != '{' {
		return ""
	}
	d.unread = *bytes.NewBuffer(bytes.TrimLeft(dec.UnreadBuffer(), ",: \t\r\n"))
	d.ahead.Reset(&d.unread, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	d.ahead.ReadToken()
	for d.ahead.PeekKind() == '"' {
		name, err := d.ahead.ReadToken()
		if err != nil {
			return ""
		}
		if name.String() != "type" {
			if d.ahead.SkipValue() != nil {
				return ""
			}
			continue
		}
		if d.ahead.PeekKind() != '"' {
			return ""
		}
		value, err := d.ahead.ReadToken()
		if err != nil {
			return ""
		}
		return value.String()
	}
	return ""
}

// raw decodes a value that is kept as it is. Each member of an Extra is one.
func (d *decoder) raw(dec *jsontext.Decoder, to *json.RawMessage) error {
	if err := d.spend(); err != nil {
		return err
	}
	value, err := dec.ReadValue()
	switch {
	case err != nil:
		return err
	case isDeeper(value, maxDepth-dec.StackDepth()):
		return errTooDeep
	case !d.strict && !value.IsValid():
		*to, err = mend(value)
		return err
	}
	*to = json.RawMessage(value.Clone())
	return nil
}

// spend counts a value that is kept.
func (d *decoder) spend() error {
	if d.values--; d.values < 0 {
		return errTooManyValues
	}
	return nil
}

// mend returns a value of a reply without the duplicate names and broken
// characters that a strict decoder refuses. Of members with the same name it
// keeps the first.
func mend(value jsontext.Value) (json.RawMessage, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out)
	seen := make([]map[string]bool, maxDepth+1) // the names of the objects that are open
	for {
		token, err := dec.ReadToken()
		if err == io.EOF {
			return bytes.TrimSpace(out.Bytes()), nil
		} else if err != nil {
			return nil, err
		}
		depth := dec.StackDepth()
		if token.Kind() == '{' {
			seen[depth] = make(map[string]bool)
		}
		if token.Kind() == '"' {
			name := token.String()
			token = jsontext.String(name)
			if kind, n := dec.StackIndex(depth); kind == '{' && n%2 == 1 {
				if seen[depth][name] {
					if err := dec.SkipValue(); err != nil {
						return nil, err
					}
					continue
				}
				seen[depth][name] = true
			}
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, err
		}
	}
}

// optional returns raw, or nil if it is null.
func optional(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// textOf returns the text of a JSON string, or "" if raw is another value.
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(b)
}

// arrayHook returns a hook that decodes slices of objects. A strict decoder
// refuses arrays of more than most elements; 0 is no bound. A lenient one skips
// elements that are not objects.
func arrayHook[T any, P pointerTo[T]](d *decoder, most int) *jsonv2.Unmarshalers {
	return jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, list *[]T) error {
		return decodeArray[T, P](d, dec, list, most)
	})
}

func decodeArray[T any, P pointerTo[T]](d *decoder, dec *jsontext.Decoder, list *[]T, most int) error {
	if ok, err := d.openArray(dec); !ok {
		return err
	}
	*list = []T{}
	for dec.PeekKind() != ']' {
		if err := d.element(dec, len(*list), most); err != nil {
			return err
		}
		if dec.PeekKind() != '{' {
			if d.strict {
				return mismatch(dec, "an object")
			}
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		var zero T
		*list = append(*list, zero)
		v := P(&(*list)[len(*list)-1])
		if p, ok := any(v).(placed); ok {
			p.place(len(*list) - 1)
		}
		if err := d.object(dec, v); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// openArray reads the beginning of an array. If the next value is not an array,
// it reads that value and returns false. Null is no error, and a lenient decoder
// skips other values.
func (d *decoder) openArray(dec *jsontext.Decoder) (ok bool, err error) {
	switch kind := dec.PeekKind(); {
	case kind == '[':
		_, err := dec.ReadToken()
		return err == nil, err
	case kind == 'n', !d.strict:
		return false, dec.SkipValue()
	}
	return false, mismatch(dec, "an array")
}

// element counts an element of an array that already has n. If a strict decoder
// allows no more, element counts the others for the message and fails.
func (d *decoder) element(dec *jsontext.Decoder, n, most int) error {
	if err := d.spend(); err != nil {
		return err
	}
	if !d.strict || most == 0 || n < most {
		return nil
	}
	array := dec.StackPointer().Parent() // the pointer is that of the element before
	for dec.PeekKind() != ']' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		n++
	}
	return newFaultAt(array, func(param string) *Error { return longArray(param, most, n) })
}

// strings decodes an array of strings.
func (d *decoder) strings(dec *jsontext.Decoder) ([]string, error) {
	if ok, err := d.openArray(dec); !ok {
		return nil, err
	}
	list := []string{}
	for dec.PeekKind() != ']' {
		if err := d.element(dec, len(list), 0); err != nil {
			return nil, err
		}
		if dec.PeekKind() != '"' {
			return nil, mismatch(dec, "a string")
		}
		var s string
		if err := jsonv2.UnmarshalDecode(dec, &s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	_, err := dec.ReadToken()
	return list, err
}

// strictInteger decodes an integer, which may be written with an exponent or a
// fraction of zero.
func strictInteger(dec *jsontext.Decoder, to *int) error {
	if dec.PeekKind() != '0' {
		return mismatch(dec, "an integer")
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(value)); err == nil && -maxInteger <= n && n <= maxInteger {
		*to = n
		return nil
	}
	f, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil || math.Abs(f) > maxInteger:
		text := string(value)
		return newFault(dec, func(param string) *Error { return outOfBounds(param, "integer", maxInteger, text) })
	case f != math.Trunc(f):
		return newFault(dec, func(param string) *Error { return invalidType(param, "an integer", "a decimal number") })
	}
	*to = int(f)
	return nil
}

// lenientInteger decodes an integer that may have a fraction or be in a string.
// Other numbers and strings count as 0, and other values change nothing.
func lenientInteger[T int | int64](dec *jsontext.Decoder, to *T) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	text := string(value)
	switch value.Kind() {
	case '0':
	case '"':
		text = strings.Trim(text, `"`)
	default:
		return nil
	}
	*to = 0
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if -maxInteger <= n && n <= maxInteger && n == int64(T(n)) {
			*to = T(n)
		}
		return nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) <= maxInteger {
		*to = T(f)
	}
	return nil
}

// lenientBool decodes a boolean. Other values count as false.
func lenientBool(dec *jsontext.Decoder, to *bool) error {
	value, err := dec.ReadValue()
	*to = string(value) == "true"
	return err
}

// lenientString decodes a string. Null counts as "", and other values as their
// JSON text.
func lenientString[T ~string](dec *jsontext.Decoder, to *T) error {
	switch dec.PeekKind() {
	case '"', 'n':
		return errors.ErrUnsupported // leaves it to the json package
	}
	value, err := dec.ReadValue()
	*to = T(value)
	return err
}
