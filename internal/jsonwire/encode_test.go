package jsonwire

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// checkString fails t unless s is written as a string that reads back as s,
// with U+FFFD for what is no character, and that no reader breaks into lines.
func checkString(t testing.TB, s string) {
	t.Helper()
	b := AppendString([]byte("x"), s)
	if b[0] != 'x' {
		t.Fatalf("%q: the prefix is lost", s)
	}
	b = b[1:]
	if !jsontext.Value(b).IsValid() {
		t.Fatalf("%q: %q is not strictly JSON", s, b)
	}
	if bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || breaksLine(r) }) {
		t.Fatalf("%q: %q has a line break", s, b)
	}
	want := string([]rune(s))
	var got string
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Fatalf("%q: %q is read as %q, %v", s, b, got, err)
	}
	d := NewDecoder(b)
	if got := d.String(); got != want || d.Finish() != nil {
		t.Fatalf("%q: %q is read as %q, %v", s, b, got, d.err)
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || breaksLine(r) }) && string(b) != `"`+s+`"` {
		t.Fatalf("%q is escaped for nothing: %q", s, b)
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `""`,
		"a/b<>&'":              `"a/b<>&'"`,
		"\"\\\n\r\t":           `"\"\\\n\r\t"`,
		"\x00\b\f\x1f\x7f":     `"\u0000\u0008\u000c\u001f` + "\x7f\"",
		"é€😀":                  `"é€😀"`,
		"\u0085\u2028\u2029":   `"\u0085\u2028\u2029"`,
		"a\xff\xc3(":           `"a\ufffd\ufffd("`,
		"\ufffd":               "\"\ufffd\"",
		"\u0084\u0086\u2027":   "\"\u0084\u0086\u2027\"",
		"data: [DONE]\n\n":     `"data: [DONE]\n\n"`,
		"12345678\n12345678\"": `"12345678\n12345678\""`,
	} {
		if got := string(AppendString(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
		checkString(t, in)
	}
}

func TestAppendStringEveryPlace(t *testing.T) {
	var all []string
	for c := range 256 {
		all = append(all, string([]byte{byte(c)}))
	}
	all = append(all, "\u0085", "\u2028", "é", "😀", "\xe2\x80", "\xf0\x9f\x98", "\xed\xa0\x80")
	for n := range 20 {
		for at := range n + 1 {
			for _, s := range all {
				checkString(t, strings.Repeat("x", at)+s+strings.Repeat("y", n-at))
			}
		}
	}
}

func TestAppendStringRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "12345678", "\"", "\\", "\n", "é", "😀", "\u2028", "\u0085", "\xff", "\xc2", "\x85", "\xe2\x80", "\xa8", "\x00"}
	for range 20_000 {
		var s strings.Builder
		for range rnd.IntN(12) {
			s.WriteString(alphabet[rnd.IntN(len(alphabet))])
		}
		checkString(t, s.String())
	}
}

func TestFloatLikeEncodingJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	floats := []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e20, 1e21, 1e-6, 1e-7, 123456789, math.MaxFloat64, math.SmallestNonzeroFloat64, math.MaxFloat32, 1 << 53, 2.5e-8}
	for range 5000 {
		if f := math.Float64frombits(rnd.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			floats = append(floats, f)
		}
	}
	for _, f := range floats {
		var e Encoder
		e.Float(f, 64)
		var got float64
		if err := json.Unmarshal(e.Buf, &got); err != nil || e.Err != nil || got != f {
			t.Fatalf("%v: %s, %v", f, e.Buf, err)
		}
		f32 := float32(f)
		if math.IsInf(float64(f32), 0) {
			continue
		}
		e = Encoder{}
		e.Float(float64(f32), 32)
		var got32 float32
		if err := json.Unmarshal(e.Buf, &got32); err != nil || e.Err != nil || got32 != f32 {
			t.Fatalf("%v: %s, %v", f32, e.Buf, err)
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var e Encoder
		if e.Float(f, 64); e.Err == nil {
			t.Errorf("%v: %s", f, e.Buf)
		}
	}
}

// compareCompact fails t unless the Encoder writes data as compactly as
// possible, and with the same meaning.
func compareCompact(t testing.TB, data []byte) {
	t.Helper()
	var e Encoder
	e.Raw(data)
	if e.Err != nil {
		t.Fatalf("%q: %v", data, e.Err)
	}
	want := jsontext.Value(bytes.Clone(data))
	if err := want.Compact(); err != nil {
		t.Fatal(err)
	}
	for old, escaped := range map[string]string{"\u0085": `\u0085`, "\u2028": `\u2028`, "\u2029": `\u2029`} {
		want = bytes.ReplaceAll(want, []byte(old), []byte(escaped))
	}
	if !bytes.Equal(e.Buf, want) {
		t.Fatalf("%q: %q, want %q", data, e.Buf, want)
	}
}

func TestRaw(t *testing.T) {
	for _, s := range valid {
		compareCompact(t, []byte(s))
	}
	compareCompact(t, []byte("[ \"\u2028\\\\\u2028\\\"\u0085\" , { \"\u2029\" : 1 } ]"))
	for _, s := range invalid {
		e := Encoder{Buf: []byte("[")}
		e.Raw([]byte(s))
		if e.Err == nil || string(e.Buf) != "[null" {
			t.Errorf("%q: %q, %v", s, e.Buf, e.Err)
		}
	}
}

func TestMembers(t *testing.T) {
	n, f := 7, 0.5
	var e Encoder
	e.Token('{')
	e.StringMember("none", "")
	e.IntMember("none", nil)
	e.FloatMember("none", nil)
	e.RawMember("none", nil)
	e.StringMember("s", "{")
	e.IntMember("n", &n)
	e.FloatMember("f", &f)
	e.RawMember("r", json.RawMessage(` [ ] `))
	e.Name("list")
	e.Token('[')
	e.Element()
	e.String("[")
	e.Element()
	e.Bool(true)
	e.Element()
	e.Literal("null")
	e.Token(']')
	e.Extra(map[string]json.RawMessage{"z": json.RawMessage("1"), "n": json.RawMessage("8"), "a\"\n": json.RawMessage(" 2 ")}, "n", "s")
	e.Token('}')
	const want = `{"s":"{","n":7,"f":0.5,"r":[],"list":["[",true,null],"a\"\n":2,"z":1}`
	if string(e.Buf) != want || e.Err != nil {
		t.Errorf("%s, %v, want %s", e.Buf, e.Err, want)
	}
	e = Encoder{}
	e.Token('{')
	e.Extra(map[string]json.RawMessage{"a": json.RawMessage("1"), "b": nil})
	e.Token('}')
	if e.Err == nil {
		t.Errorf("an empty raw value: %s", e.Buf)
	}
}
