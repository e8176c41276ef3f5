package jsonwire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A shape has a member of each kind.
type shape struct {
	Kind   string
	Label  string
	Sides  *int
	Area   *float64
	Filled bool
	Hidden *bool
	Order  int
	Data   []byte
	Style  json.RawMessage
	Origin point
	Target *point
	Points []point
	Extra  map[string]json.RawMessage
}

type point struct {
	X, Index int
	Name     string
}

var pointJSON = jsonwire.NewObject(
	jsonwire.Int("x", func(p *point) *int { return &p.X }).Always(),
	jsonwire.Int("index", func(p *point) *int { return &p.Index }),
	jsonwire.PlainString("name", func(p *point) *string { return &p.Name }),
).InitElement(func(p *point, i int) { p.Index = i })

var shapeJSON = jsonwire.NewObject(
	jsonwire.StringOr("kind", func(s *shape) *string { return &s.Kind }, "null"),
	jsonwire.String("label", func(s *shape) *string { return &s.Label }).Required().When(func(s *shape) bool { return s.Kind == "labeled" }),
	jsonwire.OptionalInt("sides", func(s *shape) **int { return &s.Sides }).Between(3, 8),
	jsonwire.OptionalFloat("area", func(s *shape) **float64 { return &s.Area }).Between(0, 1.5),
	jsonwire.Bool("filled", func(s *shape) *bool { return &s.Filled }).AlwaysIf(func(s *shape) bool { return s.Kind == "disc" }),
	jsonwire.OptionalBool("hidden", func(s *shape) **bool { return &s.Hidden }),
	jsonwire.Int("order", func(s *shape) *int { return &s.Order }),
	jsonwire.Base64("data", func(s *shape) *[]byte { return &s.Data }),
	jsonwire.Raw("style", func(s *shape) *json.RawMessage { return &s.Style }),
	jsonwire.Struct("origin", func(s *shape) *point { return &s.Origin }, pointJSON),
	jsonwire.Pointer("target", func(s *shape) **point { return &s.Target }, pointJSON),
	jsonwire.List("points", func(s *shape) *[]point { return &s.Points }, pointJSON, 3),
	jsonwire.Extra(func(s *shape) *map[string]json.RawMessage { return &s.Extra }),
).Discriminator("kind", func(s *shape) *string { return &s.Kind }).Reserve("secret")

// roundTrip decodes doc strictly and encodes what it was decoded to.
func roundTrip(t *testing.T, doc string) string {
	t.Helper()
	var s shape
	require.Nil(t, jsonwire.Unmarshal([]byte(doc), shapeJSON, &s), "%.100s", doc)
	b, err := shapeJSON.Append(nil, &s)
	require.NoError(t, err)
	return string(b)
}

func TestRoundTrip(t *testing.T) {
	for doc, want := range map[string]string{
		`{}`: `{"kind":null}`,
		`{"points":[{"x":1},{"x":2,"index":7,"unknown":{}}],"kind":"disc","target":{"x":-0},"area":1e-7}`: `{"kind":"disc","area":1e-07,"filled":false,"target":{"x":0},"points":[{"x":1},{"x":2,"index":7}]}`,
		` { "kind" : "labeled" , "label" : "a" , "z" : [ 1 , "b c" ] , "a" : null } `:                     `{"kind":"labeled","label":"a","a":null,"z":[1,"b c"]}`,
		`{"label":{},"kind":"other"}`: `{"kind":"other","label":{}}`,
		`{"sides":4.0,"area":0,"filled":true,"hidden":false,"order":1e2,"data":"AAE=","style":{"a": 1},"origin":{"x":1}}`:          `{"kind":null,"sides":4,"area":0,"filled":true,"hidden":false,"order":100,"data":"AAE=","style":{"a":1},"origin":{"x":1}}`,
		`{"kind":null,"sides":null,"filled":null,"order":null,"data":null,"style":null,"origin":null,"target":null,"points":null}`: `{"kind":null}`,
		`{"secret":1,"points":[],"\u006brder":"\ud83d\ude00\n"}`:                                                                   `{"kind":null,"krder":"\ud83d\ude00\n"}`,
	} {
		assert.Equal(t, want, roundTrip(t, doc), doc)
	}
}

func TestStrictErrors(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("{},", jsonwire.MaxValues+1), ",")
	var members strings.Builder
	for i := range jsonwire.MaxMembers + 1 {
		fmt.Fprintf(&members, `"m%d":0,`, i)
	}
	nested := strings.Repeat(`{"a":`, jsonwire.MaxDepth-1)
	for doc, want := range map[string]jsonwire.Error{
		``:                                 {Kind: jsonwire.Syntax},
		`{"kind":"a"} {}`:                  {Kind: jsonwire.Syntax},
		`{"kind":"a",}`:                    {Kind: jsonwire.Syntax},
		`{"kind" "a"}`:                     {Kind: jsonwire.Syntax},
		`{"kind":"a" "b":1}`:               {Kind: jsonwire.Syntax},
		`{"order":01}`:                     {Kind: jsonwire.Syntax},
		`{"order":-}`:                      {Kind: jsonwire.Syntax},
		`{"z":"\ud800"}`:                   {Kind: jsonwire.Syntax},
		`{"z":[1 2]}`:                      {Kind: jsonwire.Syntax},
		"{\"z\":\"\xff\"}":                 {Kind: jsonwire.Syntax},
		`null`:                             {Kind: jsonwire.WrongType, Want: "an object", Got: "null"},
		`[]`:                               {Kind: jsonwire.WrongType, Want: "an object", Got: "an array"},
		`{"kind":1}`:                       {Kind: jsonwire.WrongType, Path: "kind", Want: "a string", Got: "an integer"},
		`{"order":"1"}`:                    {Kind: jsonwire.WrongType, Path: "order", Want: "an integer", Got: "a string"},
		`{"order":1.5}`:                    {Kind: jsonwire.WrongType, Path: "order", Want: "an integer", Got: "a decimal number"},
		`{"area":{"a":[1,2]}}`:             {Kind: jsonwire.WrongType, Path: "area", Want: "a number", Got: "an object"},
		`{"filled":1e1}`:                   {Kind: jsonwire.WrongType, Path: "filled", Want: "a boolean", Got: "a decimal number"},
		`{"data":"?"}`:                     {Kind: jsonwire.WrongType, Path: "data", Want: "base64", Got: "another string"},
		`{"points":{}}`:                    {Kind: jsonwire.WrongType, Path: "points", Want: "an array", Got: "an object"},
		`{"points":[{"x":1},null]}`:        {Kind: jsonwire.WrongType, Path: "points[1]", Want: "an object", Got: "null"},
		`{"points":[{"x":1},{"x":true}]}`:  {Kind: jsonwire.WrongType, Path: "points[1].x", Want: "an integer", Got: "a boolean"},
		`{"order":9007199254740992}`:       {Kind: jsonwire.OutOfRange, Path: "order", Integer: true, Above: true, Limit: jsonwire.MaxInteger, Got: "9007199254740992"},
		`{"area":-1e999}`:                  {Kind: jsonwire.OutOfRange, Path: "area", Limit: -math.MaxFloat64, Got: "-1e999"},
		`{"kind":"a","kind":"a"}`:          {Kind: jsonwire.Duplicate, Path: "kind"},
		`{"z":1,"\u007a":2}`:               {Kind: jsonwire.Duplicate, Path: "z"},
		`{"z":[0,{"a":{"b":1,"b":2}}]}`:    {Kind: jsonwire.Duplicate, Path: "z[1].a.b"},
		`{"kind":"labeled"}`:               {Kind: jsonwire.Missing, Path: "label"},
		`{"kind":"labeled","label":null}`:  {Kind: jsonwire.WrongType, Path: "label", Want: "a string", Got: "null"},
		`{"points":[{},{},{},{},5]}`:       {Kind: jsonwire.TooLong, Path: "points", Limit: 3, Length: 5},
		`{"z":{` + members.String() + `}}`: {Kind: jsonwire.TooManyMembers, Path: "z"},
		nested + "[[1]]":                   {Kind: jsonwire.TooDeep},
		`{"points":[` + many + `]}`:        {Kind: jsonwire.TooLong, Path: "points", Limit: 3, Length: jsonwire.MaxValues + 1},
		`{"` + strings.Repeat("a\u0000\\u0000", 50) + `":"`: {Kind: jsonwire.Syntax},
	} {
		got := jsonwire.Unmarshal([]byte(doc), shapeJSON, new(shape))
		require.NotNil(t, got, "%.100s", doc)
		assert.Equal(t, want, *got, "%.100s", doc)
		assert.NotEmpty(t, got.Error())
	}
}

func TestTooManyValues(t *testing.T) {
	doc := "[" + strings.TrimSuffix(strings.Repeat("{},", jsonwire.MaxValues+1), ",") + "]"
	var list []point
	err := jsonwire.Unmarshal([]byte(doc), jsonwire.ListOf(pointJSON, 0), &list)
	require.NotNil(t, err)
	assert.Equal(t, jsonwire.TooManyValues, err.Kind)
	assert.Nil(t, jsonwire.Unmarshal([]byte(doc[:len(doc)-4]+"]"), jsonwire.ListOf(pointJSON, 0), &list))
	assert.Len(t, list, jsonwire.MaxValues)
}

// Long names and paths are clipped, and what is not printable is dropped.
func TestPath(t *testing.T) {
	long := strings.Repeat("a", 100)
	doc := `{"z":` + strings.Repeat(`{"`+long+`":[`, 20) + `{"\u0000b":1,"\u0000b":1}`
	err := jsonwire.Unmarshal([]byte(doc), shapeJSON, new(shape))
	require.NotNil(t, err)
	assert.True(t, strings.HasPrefix(err.Path, "z."+long[:64]+"...[0]."+long[:64]+"..."), err.Path)
	assert.Less(t, len(err.Path), 400)
	err = jsonwire.Unmarshal([]byte(`{"z":{"\u0000b":1,"\u0000b":1}}`), shapeJSON, new(shape))
	require.NotNil(t, err)
	assert.Equal(t, "z.b", err.Path)
}

func TestLenient(t *testing.T) {
	for doc, want := range map[string]string{
		`{"kind":5,"order":"7","filled":"x","origin":7,"points":{}}`:                               `{"kind":"5","order":7}`,
		`{"order":1.9,"points":[null,{"x":"b"},5,{"x":2}]}`:                                        `{"kind":null,"order":1,"points":[{"x":0},{"x":2,"index":1}]}`,
		`{"points":[{"x":null,"name":5},{"name":"n","index":null}]}`:                               `{"kind":null,"points":[{"x":0},{"x":0,"index":1,"name":"n"}]}`,
		`{"kind":{"a": 1},"order":[]}`:                                                             `{"kind":"{\"a\": 1}"}`,
		`{"order":1e300,"z":1,"z":2}`:                                                              `{"kind":null,"z":2}`,
		`{"z":{"a":1,"b":[{"a":"\ud83d","a":2,"c" : "\n\u0000"}],"a":3}}`:                          `{"kind":null,"z":{"a":1,"b":[{"a":"` + "\ufffd" + `","c":"\n\u0000"}]}}`,
		"{\"kind\":\"a\xff\xfeb\",\"z\xff\":\"\xe2\x80\"}":                                         "{\"kind\":\"a\ufffd\ufffdb\",\"z\ufffd\":\"\ufffd\ufffd\"}",
		`{"kind":"\ud83d\ud83d\ude00\ude00","kind":"labeled"}`:                                     `{"kind":"labeled"}`,
		`{"kind":"labeled"}`:                                                                       `{"kind":"labeled"}`,
		`{"z":{` + strings.TrimSuffix(strings.Repeat(`"a":1,`, 100), ",") + `},"points":[[],"x"]}`: `{"kind":null,"z":{"a":1}}`,
	} {
		var s shape
		require.Nil(t, jsonwire.UnmarshalLenient([]byte(doc), shapeJSON, &s), doc)
		b, err := shapeJSON.Append(nil, &s)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Replace(string(b), `"label":"",`, "", 1), doc)
	}
	for _, doc := range []string{``, `[]`, `{`, `{"kind":`, `{"z":"\x"}`, `{}{}`, `{"data":"?"}`, `{"z":` + strings.Repeat("[", 1000)} {
		assert.NotNil(t, jsonwire.UnmarshalLenient([]byte(doc), shapeJSON, new(shape)), doc)
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		shape shape
		want  *jsonwire.Error
	}{
		{shape{}, nil},
		{shape{Sides: new(3), Area: new(1.5)}, nil},
		{shape{Sides: new(2)}, &jsonwire.Error{Kind: jsonwire.OutOfRange, Path: "sides", Integer: true, Limit: 3, Got: "2"}},
		{shape{Sides: new(9), Area: new(9.0)}, &jsonwire.Error{Kind: jsonwire.OutOfRange, Path: "sides", Integer: true, Above: true, Limit: 8, Got: "9"}},
		{shape{Area: new(1e30)}, &jsonwire.Error{Kind: jsonwire.OutOfRange, Path: "area", Above: true, Limit: 1.5, Got: "1.00e+30"}},
	} {
		assert.Equal(t, test.want, shapeJSON.Check(&test.shape))
	}
}

func TestAppendErrors(t *testing.T) {
	for _, s := range []shape{
		{Area: new(math.NaN())},
		{Area: new(math.Inf(1))},
		{Style: json.RawMessage(`{"a":1,"a":2}`)},
		{Style: json.RawMessage{}},
		{Extra: map[string]json.RawMessage{"z": nil}},
		{Extra: map[string]json.RawMessage{"z": json.RawMessage("1 2")}},
		{Extra: map[string]json.RawMessage{"\xff": json.RawMessage("1")}},
	} {
		_, err := shapeJSON.Append(nil, &s)
		assert.Error(t, err)
	}
}

// A Fail of a custom Type reaches the caller.
func TestFail(t *testing.T) {
	boom := errors.New("boom")
	o := jsonwire.NewObject(jsonwire.Func("a", func(_ *point, d *jsonwire.Decoder) {
		d.UnboundedArray(func(int) { d.Skip() })
		d.Fail(boom)
	}, nil))
	err := jsonwire.Unmarshal([]byte(`{"a":[1,2],"b":1}`), o, new(point))
	require.NotNil(t, err)
	assert.Equal(t, "a", err.Path)
	assert.ErrorIs(t, err, boom)
}

// Decoded strings and raw values do not share memory with the document.
func TestDecodeCopies(t *testing.T) {
	doc := []byte(`{"kind":"alpha","style":"bravo","z":"charlie"}`)
	var s shape
	require.Nil(t, jsonwire.Unmarshal(doc, shapeJSON, &s))
	clear(doc)
	assert.Equal(t, shape{Kind: "alpha", Style: json.RawMessage(`"bravo"`), Extra: map[string]json.RawMessage{"z": json.RawMessage(`"charlie"`)}}, s)
}

// A string that is kept does not keep a document alive that is much larger.
func TestSharedMemory(t *testing.T) {
	allocations := func(doc string) float64 {
		data := []byte(doc)
		return testing.AllocsPerRun(100, func() {
			var v named
			require.Nil(t, jsonwire.Unmarshal(data, nameJSON, &v))
		})
	}
	small := `{"name":"a name that is not very long","x":"` + strings.Repeat("x", 1000) + `"}`
	large := `{"name":"a name that is not very long","x":"` + strings.Repeat("x", 10_000) + `"}`
	long := `{"name":"` + strings.Repeat("x", 10_000) + `"}`
	assert.Equal(t, allocations(small)+1, allocations(large), "the name is copied")
	assert.Equal(t, allocations(small), allocations(long), "the name is most of the document")
}

func FuzzStrings(f *testing.F) {
	for _, s := range []string{"", "a", "héllo wörld, this is longer than eight bytes", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "\u0085\u2028\u2029\U0001f600", "\xff\xed\xa0\x80", "12345678\"", "東京東京東京\\u", `\ud83d\ude00\ud83d`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := jsonwire.AppendString(nil, s)
		require.True(t, jsontest.IsStrict(quoted), "%q", quoted)
		require.False(t, bytes.ContainsAny(quoted, "\u0085\u2028\u2029\n\r"), "%q", quoted)
		var back string
		require.NoError(t, json.Unmarshal(quoted, &back))
		require.Equal(t, string([]rune(s)), back)

		// A string is decoded as encoding/json decodes it, if it is strict JSON.
		if strings.ContainsRune(s, '"') {
			return
		}
		doc := []byte(`{"name":"` + s + `"}`)
		var got, want named
		strict := jsonwire.Unmarshal(doc, nameJSON, &got)
		require.Equal(t, jsontest.IsStrict(doc), strict == nil, "%q: %v", doc, strict)
		if strict == nil {
			require.NoError(t, json.Unmarshal(doc, &want))
			require.Equal(t, want, got)
		}
	})
}

type named = struct{ Name string }

var nameJSON = jsonwire.NewObject(jsonwire.String("name", func(v *named) *string { return &v.Name }))

// What a strict Decoder accepts is strict JSON, and what a lenient one keeps too.
func FuzzRaw(f *testing.F) {
	for _, s := range []string{`null`, `[1,-0.5e+3,true,false,{}]`, `{"a":{"b":[]},"c":"\u00e9"}`, `{"a":1,"a":2}`, "\"\xff\"", `"\ud800"`, `01`, `1.`, `-`, `[1,]`, `{"a":1,}`, `tru`, ` [ ] x`, `{"a" :1 , "b": 2}`} {
		f.Add([]byte(s))
	}
	type holder struct{ raw json.RawMessage }
	o := jsonwire.NewObject(jsonwire.Raw("a", func(h *holder) *json.RawMessage { return &h.raw }))
	f.Fuzz(func(t *testing.T, value []byte) {
		doc := append(append([]byte(`{"a":`), value...), '}')
		var h holder
		if err := jsonwire.Unmarshal(doc, o, &h); err == nil {
			require.True(t, jsontest.IsStrict(doc), "%q", doc)
			if h.raw != nil {
				compact, err := jsonwire.AppendRaw(nil, h.raw)
				require.NoError(t, err)
				require.JSONEq(t, string(h.raw), string(compact))
			}
		} else if jsontest.IsStrict(doc) {
			require.NotEqual(t, jsonwire.Syntax, err.Kind, "%q", doc)
		}
		h = holder{}
		if jsonwire.UnmarshalLenient(doc, o, &h) == nil && h.raw != nil {
			require.True(t, jsontest.IsStrict(h.raw), "%q became %q", doc, h.raw)
		}
	})
}

// Text is scanned 8 bytes at a time, and after 64 bytes 32 at a time, so each ASCII character is
// tried at each place of a long string.
func TestString_EachCharacterAtEachPlace(t *testing.T) {
	for c := range byte(0x80) {
		for place := range 110 {
			text := []byte(strings.Repeat("x", 110))
			text[place] = c
			encoded := jsonwire.AppendString(nil, string(text))

			var byLibrary string
			require.NoError(t, json.Unmarshal(encoded, &byLibrary), "%q", encoded)
			require.Equal(t, string(text), byLibrary)

			var decoded shape
			document := append(append([]byte(`{"kind":"labeled","label":`), encoded...), '}')
			if err := jsonwire.Unmarshal(document, shapeJSON, &decoded); err != nil {
				t.Fatalf("%q: %v", document, err)
			}
			require.Equal(t, string(text), decoded.Label)
		}
	}
}

// The first 16 KB of a string are unescaped while they are read, so what needs more than one byte
// is tried at each place around their end.
func TestString_Long(t *testing.T) {
	for _, test := range []struct {
		special string
		strict  bool
	}{
		{`\n`, true}, {`\"`, true}, {`\u00e9`, true}, {`\ud83d\ude00`, true}, {"é東\U0001f600", true}, {"", true},
		{"\xff", false}, {"東\xff", false}, {`\ud83d`, false}, {`\ud83d\ud83d`, false},
	} {
		for place := range 30 {
			for _, tail := range []string{"", "x", `\t` + strings.Repeat("tail ", 10_000)} {
				doc := []byte(`{"name":"\r` + strings.Repeat("x", 16<<10-20+place) + test.special + tail + `"}`)
				var strict, lenient, want named
				require.NoError(t, json.Unmarshal(doc, &want))
				require.Equal(t, test.strict, jsonwire.Unmarshal(doc, nameJSON, &strict) == nil, "%q", test.special)
				if test.strict {
					require.Equal(t, want, strict)
				}
				require.Nil(t, jsonwire.UnmarshalLenient(doc, nameJSON, &lenient))
				require.Equal(t, want, lenient, "%q at %d", test.special, place)
			}
		}
	}
}

func TestAppendRaw(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":[1,"b c"]}`:         `{"a":[1,"b c"]}`,
		" 1":                      `1`,
		"1\n":                     `1`,
		`{"a": 1}`:                `{"a":1}`,
		"[\t{\r\n} , \" \\\" \"]": `[{}," \" "]`,
		"\"é\u2028\"":             `"é\u2028"`,
		"{\"\u2028\":\"\"}":       `{"\u2028":""}`,
	} {
		got, err := jsonwire.AppendRaw([]byte("x"), []byte(raw))
		require.NoError(t, err, "%q", raw)
		assert.Equal(t, "x"+want, string(got))
	}
	for _, raw := range []string{"", " ", "{", "1 2", `{"a":1,"a":2}`, "\"\xff\"", strings.Repeat("[", 600) + strings.Repeat("]", 600)} {
		_, err := jsonwire.AppendRaw(nil, []byte(raw))
		assert.Error(t, err, "%q", raw)
	}
}
