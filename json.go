package llmhttp

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Extra holds the JSON members of an object that have no field in its Go type.
// They are kept when the object is encoded again, so that new and
// vendor-specific members pass through without a release of this package.
// A member that has a field is never encoded from Extra.
type Extra map[string]stdjson.RawMessage

// A wireObject is a pointer to a struct that is a JSON object with an Extra.
//
// The exported types have MarshalJSON and UnmarshalJSON methods for the sake of
// encoding/json. The codec must not call them on nested values, because each
// call scans its value again and loses the position of errors. So it handles
// wireObjects in its own hooks and encodes and decodes their fields.
type wireObject interface {
	// fields returns a pointer to the receiver as a type without methods, or
	// to a struct that refers to it. Its tags describe the JSON object.
	fields() any

	extra() Extra
}

// A customDecoder is a wireObject that its fields do not fully describe.
type customDecoder interface {
	decode(d *decoder, dec *jsontext.Decoder) error
}

// A placed value is an element of an array that has an index of its own, which
// is its position if the sender leaves it out.
type placed interface{ place(i int) }

// Bounds on what a document may contain besides its size in bytes. They keep a
// small body from becoming much memory.
const (
	maxDepth   = 512   // nested arrays and objects
	maxMembers = 16384 // of an object; objects within one another may have four times as many
	maxValues  = 1 << 16

	// maxInteger bounds integers to those that survive a float64, as JSON
	// numbers must in JavaScript, and an int.
	maxInteger = (1<<53 - 1) & math.MaxInt
)

// A decoder decodes documents, one at a time. A strict decoder refuses what a
// request may not contain. A lenient one makes the best of a reply of another
// server: see [ChatChunk].
type decoder struct {
	lenient bool
	values  int // how many array elements and Extra members the document may still have
	body    bytes.Buffer
	dec     jsontext.Decoder
	options json.Options

	// ahead looks ahead in what is unread of the body.
	unread bytes.Buffer
	ahead  jsontext.Decoder
}

var (
	strictDecoders  = sync.Pool{New: func() any { return newDecoder(false) }}
	lenientDecoders = sync.Pool{New: func() any { return newDecoder(true) }}
)

func newDecoder(lenient bool) *decoder {
	d := &decoder{lenient: lenient}
	hooks := []*json.Unmarshalers{
		json.UnmarshalFromFunc(d.object),
		json.UnmarshalFromFunc(d.raw),
		json.UnmarshalFromFunc(d.content),
		arrayHook[Message](d, maxMessages),
		arrayHook[Tool](d, maxTools),
		arrayHook[ToolCall](d, maxToolCalls),
		arrayHook[ReasoningDetail](d, maxParts),
	}
	if lenient {
		hooks = append(hooks,
			json.UnmarshalFromFunc(lenientInteger[int]),
			json.UnmarshalFromFunc(lenientInteger[int64]),
			json.UnmarshalFromFunc(lenientBool),
			json.UnmarshalFromFunc(lenientString[string]),
			json.UnmarshalFromFunc(lenientString[Role]),
			json.UnmarshalFromFunc(lenientString[FinishReason]),
			json.UnmarshalFromFunc(d.lenientUsage),
			json.UnmarshalFromFunc(d.deltaContent),
			json.UnmarshalFromFunc(d.vector),
			arrayHook[Choice](d, 0),
			arrayHook[ChunkChoice](d, 0),
			arrayHook[ToolCallDelta](d, 0),
			arrayHook[Image](d, 0),
			arrayHook[embedding](d, 0),
		)
	} else {
		hooks = append(hooks,
			json.UnmarshalFromFunc(strictInteger),
			json.UnmarshalFromFunc(strictFloat),
			json.UnmarshalFromFunc(d.stringList),
			json.UnmarshalFromFunc(d.embeddingInput),
		)
	}
	d.options = json.JoinOptions(
		json.WithUnmarshalers(json.JoinUnmarshalers(hooks...)),
		jsontext.AllowDuplicateNames(lenient),
		jsontext.AllowInvalidUTF8(lenient),
	)
	return d
}

// unmarshal decodes all of body into v.
func (d *decoder) unmarshal(body []byte, v any) error {
	d.values = maxValues
	d.body = *bytes.NewBuffer(body)
	d.dec.Reset(&d.body, d.options)
	err := json.UnmarshalDecode(&d.dec, v)
	if err != nil {
		return err
	}
	if _, err := d.dec.ReadToken(); err != io.EOF {
		return cmpError(err, errTrailing)
	}
	return nil
}

// release gives d back. It refers to no document any more.
func (d *decoder) release() {
	d.body, d.unread = bytes.Buffer{}, bytes.Buffer{}
	d.dec.Reset(&d.body)
	d.ahead.Reset(&d.unread)
	if d.lenient {
		lenientDecoders.Put(d)
	} else {
		strictDecoders.Put(d)
	}
}

var errTrailing = errors.New("there is more than one JSON document")

func cmpError(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// decodeRequest decodes the body of a request into v, which points to a zero
// value. Its error is an *Error for the client that names the parameter at
// fault.
func decodeRequest(body []byte, v any) error {
	if err := checkBounds(body, false); err != nil {
		return err
	}
	d := strictDecoders.Get().(*decoder)
	err := d.unmarshal(body, v)
	if err != nil {
		err = d.refusal(body, err)
	}
	d.release()
	return err
}

// unmarshalRequest decodes data strictly and replaces *v. As is usual, null
// changes nothing.
func unmarshalRequest[T any](data []byte, v *T) error {
	if string(data) == "null" {
		return nil
	}
	var fresh T
	if err := decodeRequest(data, &fresh); err != nil {
		return fmt.Errorf("llmhttp: decoding %T: %s", v, err.(*Error).Message)
	}
	*v = fresh
	return nil
}

// unmarshalReply decodes data leniently and replaces *v. As is usual, null
// changes nothing.
func unmarshalReply[T any](data []byte, v *T) error {
	if string(data) == "null" {
		return nil
	}
	var fresh T
	d := lenientDecoders.Get().(*decoder)
	err := d.unmarshal(data, &fresh)
	d.release()
	if err != nil {
		return fmt.Errorf("llmhttp: decoding %T: %w", v, err)
	}
	*v = fresh
	return nil
}

// object decodes a wireObject.
func (d *decoder) object(dec *jsontext.Decoder, v wireObject) error {
	if d.lenient && dec.PeekKind() != '{' && dec.StackDepth() > 0 {
		return dec.SkipValue()
	}
	if dec.PeekKind() == 'n' && dec.StackDepth() == 0 {
		return mismatch(dec, "an object")
	}
	if c, ok := v.(customDecoder); ok {
		return c.decode(d, dec)
	}
	if err := json.UnmarshalDecode(dec, v.fields()); err != nil {
		return err
	}
	if f, ok := v.(interface{ decoded() }); ok {
		f.decoded()
	}
	return nil
}

// spend counts a value that is kept.
func (d *decoder) spend() error {
	if d.values--; d.values < 0 {
		return errTooManyValues
	}
	return nil
}

// raw decodes a value that is kept as it is. Each member of an Extra is one.
func (d *decoder) raw(dec *jsontext.Decoder, to *stdjson.RawMessage) error {
	if err := d.spend(); err != nil {
		return err
	}
	value, err := dec.ReadValue()
	switch {
	case err != nil:
		return err
	case isDeeper(value, maxDepth-dec.StackDepth()):
		return errTooDeep
	case d.lenient && !value.IsValid():
		*to = mend(value)
		return nil
	}
	*to = stdjson.RawMessage(bytes.Clone(value))
	return nil
}

// optional returns raw, or nil if it is null.
func optional(raw stdjson.RawMessage) stdjson.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// mend returns a value of a reply without the duplicate names and broken
// characters that a strict reader would refuse.
func mend(value jsontext.Value) stdjson.RawMessage {
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var mended any
	switch value.Kind() {
	case '{':
		mended = new(map[string]jsontext.Value)
	case '[':
		mended = new([]jsontext.Value)
	default:
		mended = new(string)
	}
	if json.Unmarshal(value, mended, lenient) != nil {
		return stdjson.RawMessage("null")
	}
	switch v := mended.(type) {
	case *map[string]jsontext.Value:
		for name, member := range *v {
			(*v)[name] = jsontext.Value(mend(member))
		}
	case *[]jsontext.Value:
		for i, element := range *v {
			(*v)[i] = jsontext.Value(mend(element))
		}
	}
	b, err := json.Marshal(mended, json.Deterministic(true))
	if err != nil {
		return stdjson.RawMessage("null")
	}
	return b
}

// arrayHook decodes slices of objects. A strict decoder refuses arrays of more
// than most elements, if most is not 0. A lenient one skips elements that are
// not objects.
func arrayHook[T any, P interface {
	*T
	wireObject
}](d *decoder, most int) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(dec *jsontext.Decoder, list *[]T) error {
		return decodeArray[T, P](d, dec, list, most)
	})
}

func decodeArray[T any, P interface {
	*T
	wireObject
}](d *decoder, dec *jsontext.Decoder, list *[]T, most int) error {
	if ok, err := d.openArray(dec, "an array"); !ok {
		return err
	}
	*list = []T{}
	for dec.PeekKind() != ']' {
		if err := d.element(dec, len(*list), most); err != nil {
			return err
		}
		if d.lenient && dec.PeekKind() != '{' {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if dec.PeekKind() == 'n' {
			return mismatch(dec, "an object")
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

// openArray reads the beginning of an array. If there is none, it reads what
// there is instead and returns false: null is no error, and other values are
// none to a lenient decoder.
func (d *decoder) openArray(dec *jsontext.Decoder, want string) (ok bool, err error) {
	switch kind := dec.PeekKind(); {
	case kind == '[':
		_, err := dec.ReadToken()
		return err == nil, err
	case kind == 'n', d.lenient:
		return false, dec.SkipValue()
	}
	return false, mismatch(dec, want)
}

// element counts an element of an array that already has n. If the array may
// have no more, it counts the others for the message and fails.
func (d *decoder) element(dec *jsontext.Decoder, n, most int) error {
	if err := d.spend(); err != nil {
		return err
	}
	if most == 0 || n < most || d.lenient {
		return nil
	}
	param := dec.StackPointer().Parent()
	if n == 0 {
		param = dec.StackPointer()
	}
	for dec.PeekKind() != ']' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		n++
	}
	return newFaultAt(param, func(param string) *Error { return longArray(param, most, n) })
}

// decodeStrings decodes an array of strings.
func (d *decoder) decodeStrings(dec *jsontext.Decoder, most int) ([]string, error) {
	if ok, err := d.openArray(dec, "an array"); !ok {
		return nil, err
	}
	list := []string{}
	for dec.PeekKind() != ']' {
		if err := d.element(dec, len(list), most); err != nil {
			return nil, err
		}
		if dec.PeekKind() != '"' {
			return nil, mismatch(dec, "a string")
		}
		var s string
		if err := json.UnmarshalDecode(dec, &s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	_, err := dec.ReadToken()
	return list, err
}

func strictFloat(dec *jsontext.Decoder, to *float64) error {
	if dec.PeekKind() != '0' {
		return mismatch(dec, "a number")
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return rangeFault(dec, string(value), "decimal", math.MaxFloat64)
	}
	*to = f
	return nil
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
		return rangeFault(dec, string(value), "integer", maxInteger)
	case f != math.Trunc(f):
		return newFault(dec, func(param string) *Error { return invalidType(param, "an integer", "a decimal number") })
	}
	*to = int(f)
	return nil
}

// lenientInteger decodes an integer that may have a fraction or be in a string.
// Null changes nothing, and other values count as 0.
func lenientInteger[T int | int64](dec *jsontext.Decoder, to *T) error {
	value, err := dec.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return err
	}
	text := string(value)
	if value.Kind() == '"' {
		text = strings.Trim(text, `"`)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(f) > maxInteger {
			f = 0
		}
		n = int64(f)
	}
	if n < -maxInteger || n > maxInteger {
		n = 0
	}
	*to = T(n)
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
		return errors.ErrUnsupported // by this hook: the package decodes them
	}
	value, err := dec.ReadValue()
	*to = T(value)
	return err
}

// encodeOptions are those of every document. What is written may not have a
// line break that some readers of streams know besides \n.
var encodeOptions = json.JoinOptions(
	json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(encodeObject),
		json.MarshalToFunc(encodeRaw),
		json.MarshalToFunc(encodeFinishReason),
		json.MarshalToFunc(encodeContent),
		json.MarshalToFunc(encodeStringList),
		json.MarshalToFunc(encodeEmbeddingInput),
		json.MarshalToFunc(encodeVector),
	)),
	json.Deterministic(true),
	jsontext.AllowInvalidUTF8(true), // replaced by U+FFFD
	jsontext.EscapeForJS(true),
	jsontext.PreserveRawStrings(true),
)

// appendJSON appends the JSON of v, which points to a type of the wire, without
// needless space. It escapes U+0085, U+2028 and U+2029: some clients of
// streams end a line there, as Python's splitlines does.
func appendJSON(b []byte, v any) ([]byte, error) {
	w := bytes.NewBuffer(b)
	err := json.MarshalWrite(w, v, encodeOptions)
	start := len(b)
	b = w.Bytes()
	if err != nil {
		return b[:start], fmt.Errorf("llmhttp: encoding %T: %w", v, err)
	}
	return escapeNextLine(b, start), nil
}

// escapeNextLine escapes U+0085 in b, from start on.
func escapeNextLine(b []byte, start int) []byte {
	if !bytes.Contains(b[start:], []byte("\u0085")) {
		return b
	}
	return append(b[:start], bytes.ReplaceAll(b[start:], []byte("\u0085"), []byte(`\u0085`))...)
}

// appendString appends s as [appendJSON] does.
func appendString(b []byte, s string) []byte {
	start := len(b)
	b, _ = jsontext.AppendQuote(b, s) // the only error is invalid UTF-8, which is replaced
	for i := start; i < len(b); i++ {
		if b[i] == 0xc2 || b[i] == 0xe2 {
			return escapeLineBreaks(b, start)
		}
	}
	return b
}

var lineBreaks = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

func escapeLineBreaks(b []byte, start int) []byte {
	return append(b[:start], lineBreaks.Replace(string(b[start:]))...)
}

// marshal returns the JSON of v.
func marshal(v any) ([]byte, error) { return appendJSON(nil, v) }

// encodeObject encodes a wireObject without what Extra says of its fields.
func encodeObject(enc *jsontext.Encoder, v wireObject) error {
	fields, extra := encodedFields(v), v.extra()
	if len(extra) == 0 {
		return json.MarshalEncode(enc, fields)
	}
	known := membersOf(reflect.TypeOf(fields).Elem())
	for name := range extra {
		if !known[name] {
			continue
		}
		others := make(Extra, len(extra))
		for name, raw := range extra {
			if !known[name] {
				others[name] = raw
			}
		}
		copied := reflect.New(reflect.TypeOf(v).Elem())
		copied.Elem().Set(reflect.ValueOf(v).Elem())
		copied.Elem().FieldByName("Extra").Set(reflect.ValueOf(others))
		fields = encodedFields(copied.Interface().(wireObject))
		break
	}
	for name := range extra {
		if !utf8.ValidString(name) { // two could become the same
			return errors.New("the name of a member is not UTF-8")
		}
	}
	return json.MarshalEncode(enc, fields)
}

// encodedFields returns the fields of v as they are encoded, where that differs
// from how they are decoded.
func encodedFields(v wireObject) any {
	if e, ok := v.(interface{ encoded() any }); ok {
		return e.encoded()
	}
	return v.fields()
}

var knownMembers sync.Map // map[reflect.Type]map[string]bool

// membersOf returns the names of the members that a struct's tags describe.
func membersOf(t reflect.Type) map[string]bool {
	if m, ok := knownMembers.Load(t); ok {
		return m.(map[string]bool)
	}
	names := make(map[string]bool)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			names[name] = true
		case options == "embed" && f.Type.Kind() == reflect.Pointer:
			for name := range membersOf(f.Type.Elem()) {
				names[name] = true
			}
		}
	}
	knownMembers.Store(t, names)
	return names
}

// encodeRaw encodes a value that is kept as it is, and fails if it is broken.
func encodeRaw(enc *jsontext.Encoder, raw stdjson.RawMessage) error {
	return json.MarshalEncode(enc, jsontext.Value(raw), jsontext.AllowInvalidUTF8(false))
}
