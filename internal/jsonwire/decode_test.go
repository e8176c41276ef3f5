package jsonwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// accepts reports whether data is one document for a Decoder.
func accepts(data []byte) *Error {
	d := NewDecoder(data)
	d.Skip()
	return d.Finish()
}

var valid = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `-1`, `10`, `1.5`, `-0.0`, `1e5`, `1E+5`, `1e-5`, `0e0`, `0.1e01`, `123456789012345678901234567890`,
	`""`, `"a"`, `"é"`, `"😀"`, `"\u00e9"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\"\\\/\b\f\n\r\t"`, "\"\u007f\u0080\u2028\"", `"\u0000"`,
	`"12345678"`, `"1234567\""`, `"12345678\n"`, `"1234567é"`, `"12345678901234567890é1234567"`,
	`[]`, `[ ]`, `[1]`, `[1,2]`, `[[],[[]]]`, `[null,true,false,"a",{}]`,
	`{}`, `{ }`, `{"a":1}`, `{"a":1,"b":2}`, `{"":0}`, `{"a":{"a":{"a":[{"a":1}]}}}`, `{"a":1,"A":2}`, `{"a":{"b":1},"b":1}`, `[{"a":1},{"a":1}]`,
	" \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
}

var invalid = []string{
	``, ` `, `nul`, `nulll`, `True`, `t`, `-`, `+1`, `01`, `-01`, `1.`, `.1`, `1e`, `1e+`, `0x1`, `1_0`, `NaN`, `Infinity`, `1 2`, `--1`, `1a`,
	`"`, `"a`, `'a'`, `"\x"`, `"\u"`, `"\u12"`, `"\u123g"`, `"\`, `"\"`, "\"\n\"", "\"\x00\"", "\"12345678\x1f\"", `"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dx"`, `"\ude00\ud83d"`, `"\ud83d\ud83d"`,
	"\"\xff\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"12345678\xff\"", "\"1234567\x80\\n\"",
	`[`, `]`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `[1,,2]`, `[}`, `{]`,
	`{`, `}`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a"::1}`, `{"a":1:2}`, `{null:1}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[{"x":{"a":1,"b":1,"a":1}}]`, "{\"\xff\":1}", `{"\ud800":1}`,
	`{} {}`, `{}x`, `null,`, `[] ]`, "\ufeff{}", "{}\x00", "\u00a0{}", "/**/{}", "{}//",
}

func TestSkipTable(t *testing.T) {
	for _, s := range valid {
		if err := accepts([]byte(s)); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range invalid {
		if accepts([]byte(s)) == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

// TestSkipOracle compares with an implementation that nobody here wrote, on
// the tables and on each of their prefixes and single-byte changes.
func TestSkipOracle(t *testing.T) {
	for _, s := range append(append([]string{}, valid...), invalid...) {
		compare(t, []byte(s))
		for i := range len(s) {
			compare(t, []byte(s[:i]))
			compare(t, []byte(s[:i]+s[i+1:]))
			for _, c := range []byte("\"\\{}[],:0-.eu \x00\x1f\x80\xff") {
				b := []byte(s)
				b[i] = c
				compare(t, b)
				compare(t, []byte(s[:i]+string([]byte{c})+s[i:]))
			}
		}
	}
}

// compare fails t unless a Decoder and jsontext agree on data.
func compare(t testing.TB, data []byte) {
	t.Helper()
	err := accepts(data)
	if err != nil && (err.Kind == TooDeep || err.Kind == TooMany) {
		return
	}
	if want := jsontext.Value(data).IsValid(); (err == nil) != want {
		t.Fatalf("%q: %v, the oracle says %t", data, err, want)
	}
	if err != nil {
		return
	}
	d := NewDecoder(data)
	raw := d.Raw()
	if d.Finish() != nil || !bytes.Equal(raw, bytes.Trim(data, " \t\r\n")) {
		t.Fatalf("%q: Raw is %q, %v", data, raw, d.err)
	}
	compareValue(t, data)
	compareCompact(t, data)
}

// compareValue fails t unless a Decoder reads the value that encoding/json reads.
func compareValue(t testing.TB, data []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var want any
	if err := dec.Decode(&want); err != nil {
		return // encoding/json has its own bounds
	}
	d := NewDecoder(data)
	d.Budget = math.MaxInt
	got := decodeAny(d)
	if err := d.Finish(); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %#v, %v, want %#v", data, got, err, want)
	}
}

func decodeAny(d *Decoder) any {
	switch d.Kind() {
	case '{':
		m := map[string]any{}
		for o := d.Object(); o.Next(); {
			name := string(o.Name)
			m[name] = decodeAny(d)
		}
		return m
	case '[':
		l := []any{}
		for a := d.Array(); a.Next(); {
			l = append(l, decodeAny(d))
		}
		return l
	case '"':
		return d.String()
	case '0':
		return json.Number(d.Raw())
	case 't', 'f':
		return d.Bool()
	}
	d.Null()
	return nil
}

func nested(open, middle, shut string, depth int) []byte {
	return []byte(strings.Repeat(open, depth) + middle + strings.Repeat(shut, depth))
}

func TestDepth(t *testing.T) {
	for _, test := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`[{"a":`, "}]"}} {
		per := strings.Count(test[0], "[") + strings.Count(test[0], "{")
		if err := accepts(nested(test[0], "1", test[1], MaxDepth/per)); err != nil {
			t.Errorf("%q at the bound: %v", test[0], err)
		}
		if err := accepts(nested(test[0], "1", test[1], MaxDepth/per+1)); err == nil || err.Kind != TooDeep {
			t.Errorf("%q beyond the bound: %v", test[0], err)
		}
		// Without ends, and with far too many.
		if err := accepts([]byte(strings.Repeat(test[0], 5_000_000))); err == nil || err.Kind != TooDeep {
			t.Errorf("%q, five million: %v", test[0], err)
		}
	}
	// Depth is given back.
	wide := "[" + strings.Repeat(string(nested("[", "{}", "]", MaxDepth-2))+",", 100) + "1]"
	if err := accepts([]byte(wide)); err != nil {
		t.Errorf("wide: %v", err)
	}
}

func object(members int, last string) []byte {
	var b strings.Builder
	b.WriteByte('{')
	for i := range members {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	b.WriteString(last + "}")
	return []byte(b.String())
}

// Names are compared one by one in small objects and by hash in large ones.
func TestDuplicates(t *testing.T) {
	for _, n := range []int{0, 1, smallObject - 1, smallObject, smallObject + 1, 16 * smallObject, 1000} {
		if err := accepts(object(n, `"last":1`)); err != nil {
			t.Errorf("%d members: %v", n, err)
		}
		if n == 0 {
			continue
		}
		for _, dup := range []string{`"k0":1`, fmt.Sprintf(`"k%d":1`, n-1), `"\u006b0":1`} {
			if err := accepts(object(n, dup)); err == nil || err.Kind != Duplicate {
				t.Errorf("%d members and %s: %v", n, dup, err)
			}
		}
	}
	// Neighbours do not share names, whether they are small or large.
	list := "[" + strings.Repeat(string(object(100, `"a":{"k1":1}`))+","+string(object(3, `"a":1`))+",", 5) + "0]"
	if err := accepts([]byte(list)); err != nil {
		t.Errorf("neighbours: %v", err)
	}
	// An object within a large one has its own names, and the outer one keeps its.
	inner := string(object(100, `"x":1`))
	if err := accepts(object(100, `"x":`+inner+`,"y":`+inner)); err != nil {
		t.Errorf("nested: %v", err)
	}
	if err := accepts(object(100, `"x":`+inner+`,"k7":`+inner)); err == nil || err.Kind != Duplicate {
		t.Errorf("nested: %v", err)
	}
}

func TestMaxMembers(t *testing.T) {
	if err := accepts(object(MaxMembers-1, `"a":1`)); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if err := accepts(object(MaxMembers, `"a":1`)); err == nil || err.Kind != TooMany {
		t.Errorf("beyond it: %v", err)
	}
}

func TestBudget(t *testing.T) {
	read := func(budget int, data string) *Error {
		d := NewDecoder([]byte(data))
		d.Budget = budget
		var extra map[string]json.RawMessage
		for o := d.Object(); o.Next(); {
			if string(o.Name) != "list" {
				d.Keep(&extra, o.Name)
				continue
			}
			for a := d.Array(); a.Next(); {
				d.Skip()
			}
		}
		return d.Finish()
	}
	const doc = `{"list":[1,[2,3],{"a":1}],"x":[1,2,3],"y":2}`
	if err := read(5, doc); err != nil {
		t.Errorf("three elements and two members: %v", err)
	}
	if err := read(4, doc); err == nil || err.Kind != TooMany {
		t.Errorf("one more than the budget: %v", err)
	}
}

func TestMax(t *testing.T) {
	read := func(data string) *Error {
		d := NewDecoder([]byte(data))
		for o := d.Object(); o.Next(); {
			for a := d.Array(); a.Next() && a.Max(3); {
				d.Skip()
			}
		}
		return d.Finish()
	}
	if err := read(`{"a":[1,2,3]}`); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	want := &Error{Kind: TooLong, Path: "a", Limit: 3, Count: 6}
	if err := read(`{"a":[1,2,3,[4,4],{"b":5},6]}`); !reflect.DeepEqual(err, want) {
		t.Errorf("beyond it: %+v, want %+v", err, want)
	}
	if err := read(`{"a":[1,2,3,4,}`); err == nil || err.Kind != Syntax {
		t.Errorf("beyond it and broken: %+v", err)
	}
	if err := read(`{"a":[1,2,3,4` + strings.Repeat(",0", 200_000) + `]}`); err == nil || err.Count != 200_004 {
		t.Errorf("far beyond it: %+v", err)
	}
}

func TestInt(t *testing.T) {
	for in, want := range map[string]int{
		"0": 0, "-0": 0, "7": 7, "-7": -7, "1.0": 1, "-1.000": -1, "1e3": 1000, "1.5e1": 15, "10e-1": 1, "0.0": 0, "0e9": 0,
		"2147483647": math.MaxInt32, "-2147483647": -math.MaxInt32, strconv.Itoa(maxInt): maxInt, strconv.Itoa(-maxInt): -maxInt, strconv.Itoa(maxInt) + ".0": maxInt,
	} {
		d := NewDecoder([]byte(in))
		if got := d.Int(); got != want || d.Finish() != nil {
			t.Errorf("%s: %d, %v", in, got, d.err)
		}
		d = NewDecoder([]byte(in))
		if got := d.IntPtr(new(*Numbers)); got == nil || *got != want || d.Finish() != nil {
			t.Errorf("%s: %v, %v", in, got, d.err)
		}
	}
	for in, kind := range map[string]Kind{
		"1.5": Type, "0.1": Type, "1e-1": Type, "9007199254740992": Range, "-9007199254740992": Range, "1e400": Range, "-1e400": Range,
		"100000000000000000000": Range, "9007199254740991.5": Range, strconv.Itoa(maxInt) + "0": Range, strconv.Itoa(-maxInt) + "0.0": Range, "true": Type, `"1"`: Type, "null": Type, "{}": Type, "[1]": Type, "01": Syntax, "1.": Syntax, "": Syntax, "x": Syntax, "[": Syntax,
	} {
		d := NewDecoder([]byte(in))
		got := d.Int()
		err := d.Finish()
		if err == nil || got != 0 {
			t.Errorf("%s: %d, %v", in, got, err)
			continue
		}
		if err.Kind != kind && !(in == "9007199254740991.5" && err.Kind == Type) {
			t.Errorf("%s: %+v, want kind %d", in, err, kind)
		}
	}
	d := NewDecoder([]byte("null"))
	if d.IntPtr(new(*Numbers)) != nil || d.Finish() != nil {
		t.Error("null is not nil")
	}
}

// Integers as texts of any form are read exactly or refused.
func TestIntExact(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 1<<31 - 1, 1 << 31, 1<<53 - 1, 999999999999999, 1000000000000000} {
		for _, sign := range []int{1, -1} {
			n := n * sign
			for _, in := range []string{strconv.Itoa(n), strconv.Itoa(n) + ".0", strconv.Itoa(n) + ".0e0", strconv.Itoa(n) + ".000E+0"} {
				d := NewDecoder([]byte(in))
				if got := d.Int(); got != n || d.Finish() != nil {
					t.Errorf("%s: %d, %v", in, got, d.err)
				}
			}
		}
	}
}

func TestFloat(t *testing.T) {
	for _, in := range []string{"0", "-0", "1.5", "-2.25e-3", "1e308", "4.9e-324", "1e-400", "0.1", "123456789.123456789", "9007199254740993"} {
		want, _ := strconv.ParseFloat(in, 64)
		d := NewDecoder([]byte(in))
		if got := d.Float(); got != want || d.Finish() != nil {
			t.Errorf("%s: %v, %v", in, got, d.err)
		}
		d = NewDecoder([]byte(in))
		if got := d.FloatPtr(new(*Numbers)); got == nil || *got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
	for in, above := range map[string]bool{"1e309": true, "-1e309": false} {
		d := NewDecoder([]byte(in))
		d.Float()
		if err := d.Finish(); err == nil || err.Kind != Range || err.Above != above || err.Noun != "decimal" {
			t.Errorf("%s: %+v", in, err)
		}
	}
	d := NewDecoder([]byte("null"))
	if d.FloatPtr(new(*Numbers)) != nil || d.Finish() != nil {
		t.Error("null is not nil")
	}
}

func TestBoolAndNull(t *testing.T) {
	for in, want := range map[string]bool{"true": true, "false": false, "null": false, " true ": true} {
		d := NewDecoder([]byte(in))
		if got := d.Bool(); got != want || d.Finish() != nil {
			t.Errorf("%s: %t, %v", in, got, d.err)
		}
	}
	for _, in := range []string{"1", `"true"`, "tru", "truee", "[]", "nul"} {
		d := NewDecoder([]byte(in))
		if got := d.Bool(); d.Finish() == nil {
			t.Errorf("%s: %t, %v", in, got, d.err)
		}
	}
	d := NewDecoder([]byte(`[null, null ,1]`))
	a := d.Array()
	for a.Next() {
		if got := d.Null(); got != (a.Index() < 2) {
			t.Errorf("element %d: %t", a.Index(), got)
		}
		if a.Index() == 2 {
			d.Skip()
		}
	}
	if err := d.Finish(); err != nil {
		t.Error(err)
	}
}

// What is wrong is named, with the path to it.
func TestErrors(t *testing.T) {
	tests := map[string]Error{
		`[]`:                                  {Kind: Type, Want: "an object", Got: "an array"},
		`7`:                                   {Kind: Type, Want: "an object", Got: "an integer"},
		`{"s":1.5}`:                           {Kind: Type, Path: "s", Want: "a string", Got: "a decimal number"},
		`{"s":-1e5}`:                          {Kind: Type, Path: "s", Want: "a string", Got: "a decimal number"},
		`{"s":[{"a":1},1.5]}`:                 {Kind: Type, Path: "s", Want: "a string", Got: "an array"},
		`{"list":[{"s":"a"},{"s":true}]}`:     {Kind: Type, Path: "list[1].s", Want: "a string", Got: "a boolean"},
		`{"list":[{},{"list":[{"s":null}]}]}`: {Kind: Type, Path: "list[1].list[0].s", Want: "a string", Got: "null"},
		`{"list":{}}`:                         {Kind: Type, Path: "list", Want: "an array", Got: "an object"},
		`{"list":[{"s":"a","s":"b"}]}`:        {Kind: Duplicate, Path: "list[0].s"},
		`{"n":1.5}`:                           {Kind: Type, Path: "n", Want: "an integer", Got: "a decimal number"},
		`{"n":"1"}`:                           {Kind: Type, Path: "n", Want: "an integer", Got: "a string"},
		`{"n":99999999999999999999}`:          {Kind: Range, Path: "n", Noun: "integer", Above: true, Limit: maxInt, Got: "99999999999999999999"},
		`{"n":-99999999999999999999}`:         {Kind: Range, Path: "n", Noun: "integer", Limit: -maxInt, Got: "-99999999999999999999"},
		`{"other":{"a":[1,{"b":1,"b":2}]}}`:   {Kind: Duplicate, Path: "other.a[1].b"},
		`{"s":}`:                              {Kind: Syntax},
		`{"s":[1,}`:                           {Kind: Syntax},
	}
	for in, want := range tests {
		d := NewDecoder([]byte(in))
		readNode(d)
		err := d.Finish()
		if err == nil || *err != want {
			t.Errorf("%s: %+v, want %+v", in, err, want)
		}
		if !d.Failed() {
			t.Errorf("%s: not Failed", in)
		}
		if err != nil && err.Error() == "" {
			t.Errorf("%s: no text", in)
		}
	}
}

func readNode(d *Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "s":
			_ = d.String()
		case "n":
			d.Int()
		case "list":
			for a := d.Array(); a.Next(); {
				readNode(d)
			}
		default:
			d.Skip()
		}
	}
}

// The first error counts, and after it everything ends at once.
func TestErrorSticks(t *testing.T) {
	d := NewDecoder([]byte(`{"list":[{"s":1},{"s":2}],"n":"x"}`))
	readNode(d)
	first := d.Finish()
	for range 3 {
		d.Skip()
		d.Int()
		_ = d.String()
		d.Float()
		d.Bool()
		d.Mismatch("nothing")
		d.Missing("x")
		d.Invalid("y", "z")
		if o := d.Object(); o.Next() {
			t.Error("a member after an error")
		}
		if a := d.Array(); a.Next() {
			t.Error("an element after an error")
		}
	}
	if err := d.Finish(); err != first || first.Path != "list[0].s" {
		t.Errorf("%+v, at first %+v", err, first)
	}
}

func TestMissingAndInvalid(t *testing.T) {
	d := NewDecoder([]byte(`{"list":[{"a":1}]}`))
	for o := d.Object(); o.Next(); {
		for a := d.Array(); a.Next(); {
			d.Skip()
			d.Missing("type")
		}
	}
	if err := d.Finish(); err == nil || *err != (Error{Kind: Missing, Path: "list[0].type"}) {
		t.Errorf("%+v", err)
	}
	d = NewDecoder([]byte(`{"a":"x"}`))
	for o := d.Object(); o.Next(); {
		_ = d.String()
		d.Invalid("base64", "another string")
	}
	if err := d.Finish(); err == nil || *err != (Error{Kind: Type, Path: "a", Want: "base64", Got: "another string"}) {
		t.Errorf("%+v", err)
	}
	d = NewDecoder([]byte(`{}`))
	d.Skip()
	d.Missing("a")
	if err := d.Finish(); err == nil || err.Path != "a" {
		t.Errorf("%+v", err)
	}
}

// A path is short and printable whatever the names are.
func TestPathIsClipped(t *testing.T) {
	name, _ := json.Marshal(strings.Repeat("n", 10_000) + "\x00\u2028\n")
	in := strings.Repeat(`{`+string(name)+`:`, 100) + `{"a":1,"a":1}`
	err := accepts([]byte(in))
	if err == nil || err.Kind != Duplicate || len(err.Path) > 512 || strings.ContainsAny(err.Path, "\x00\u2028\n") {
		t.Errorf("%+v", err)
	}
	d := NewDecoder([]byte(strings.Repeat("9", 1000)))
	d.Int()
	if err := d.Finish(); err == nil || len(err.Got) > 64 {
		t.Errorf("%+v", err)
	}
}

// What is returned is not part of the document, but for views.
func TestCopies(t *testing.T) {
	doc := []byte(`{"keep":{"a":1},"s":"text"}`)
	d := NewDecoder(doc)
	var extra map[string]json.RawMessage
	var s string
	for o := d.Object(); o.Next(); {
		if string(o.Name) == "s" {
			s = d.String()
		} else {
			d.Keep(&extra, o.Name)
		}
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	clear(doc)
	if s != "text" || string(extra["keep"]) != `{"a":1}` || len(extra) != 1 {
		t.Errorf("%q, %q", s, extra)
	}
}

// Strings of every length, with what is special at every place, and long ones
// that have it near where blocks begin and end.
func TestStringScan(t *testing.T) {
	for n := range 40 {
		for at := range n + 1 {
			checkScan(t, at, n)
		}
	}
	for _, n := range []int{2*plainBlock - 1, 2 * plainBlock, 2*plainBlock + 1, 4*plainBlock + 40} {
		for _, edge := range []int{0, plainBlock, 3 * plainBlock / 2, 2 * plainBlock, 3 * plainBlock, n} {
			for at := max(edge-9, 0); at <= min(edge+9, n); at++ {
				checkScan(t, at, n)
			}
		}
	}
}

// checkScan reads strings of n plain characters and a special one at a place.
func checkScan(t *testing.T, at, n int) {
	t.Helper()
	before, after := strings.Repeat("x", at), strings.Repeat("y", n-at)
	for _, special := range []string{"", `\n`, `\"`, `\\`, `\u0041`, `\ud83d\ude00`, "é", "😀", "\x7f", " ", "!", "\u0080"} {
		in := `"` + before + special + after + `"`
		var want string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		d := NewDecoder([]byte(in))
		if got := d.String(); got != want || d.Finish() != nil {
			t.Fatalf("%s: %q, %v", in, got, d.err)
		}
	}
	for _, bad := range []string{"\x00", "\x1f", "\n", "\xff", "\x80", `\`, `\x`, `\u12`, `\ud800`} {
		in := `"` + before + bad + after + `"`
		if err := accepts([]byte(in)); err == nil && bad != `\` {
			t.Fatalf("%q is accepted", in)
		}
		compare(t, []byte(in))
	}
}

// Texts that are long enough stay where they are, and are written as they are.
func TestShare(t *testing.T) {
	const share = 100
	long := func(c string) string { return strings.Repeat(c, share) }
	in := []byte(`["` + long("a") + `","` + long("b")[1:] + `","` + long("c") + `\n","` + long("d") + `","` + long("é") + `"]`)
	d := NewDecoder(in)
	d.Share = share
	var texts []string
	for a := d.Array(); a.Next(); {
		texts = append(texts, d.Text())
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	within := func(s string) bool {
		p := uintptr(unsafe.Pointer(unsafe.StringData(s)))
		return p >= uintptr(unsafe.Pointer(&in[0])) && p <= uintptr(unsafe.Pointer(&in[len(in)-1]))
	}
	for i, want := range []bool{true, false, false, true, true} {
		if within(texts[i]) != want {
			t.Errorf("text %d is in the document: %t", i, !want)
		}
	}
	if want := []string{texts[0], texts[3], texts[4]}; !slices.Equal(d.Shared, want) {
		t.Errorf("%q", d.Shared)
	}
	e := Encoder{Plain: d.Shared, Cut: true}
	e.Token('[')
	for _, s := range texts {
		e.Element()
		e.String(s)
	}
	e.Token(']')
	if n := len(e.Pieces); n != 6 {
		t.Errorf("%d pieces", n)
	}
	for i := 1; i < len(e.Pieces); i += 2 {
		if unsafe.SliceData(e.Pieces[i]) != unsafe.StringData(d.Shared[i/2]) {
			t.Errorf("piece %d is a copy", i)
		}
	}
	if got := append(bytes.Join(e.Pieces, nil), e.Buf...); !bytes.Equal(got, in) {
		t.Errorf("%s", got)
	}
	e = Encoder{Plain: d.Shared}
	e.String(texts[3])
	e.String(strings.Clone(texts[3]))
	if len(e.Pieces) != 0 || string(e.Buf) != `"`+long("d")+`""`+long("d")+`"` {
		t.Errorf("%s", e.Buf)
	}
}

// No more than a few strings are shared, and only those that are Texts.
func TestShareIsBounded(t *testing.T) {
	in := []byte("[" + strings.Repeat(`"aaaa",`, 3*maxShared) + `"bbbb"]`)
	d := NewDecoder(in)
	d.Share = 1
	for a := d.Array(); a.Next(); {
		if _ = d.String(); len(d.Shared) > 0 {
			t.Fatal("a String is shared")
		}
	}
	d.Reset(in)
	d.Share = 1
	for a := d.Array(); a.Next(); {
		d.Text()
	}
	if err := d.Finish(); err != nil || len(d.Shared) != maxShared {
		t.Errorf("%d are shared, %v", len(d.Shared), err)
	}
}

// Nesting and size cost little memory.
func TestHostileDocumentsAreCheap(t *testing.T) {
	for name, in := range map[string]string{
		"open arrays":  strings.Repeat("[", 1<<20),
		"open objects": strings.Repeat(`{"":`, 1<<18),
		"escapes":      `"` + strings.Repeat(`\u0041`, 1<<17) + `"`,
		"number":       strings.Repeat("9", 1<<20),
		"exponent":     "1e" + strings.Repeat("9", 1<<20),
		"spaces":       strings.Repeat(" ", 1<<20) + "1",
		"members":      string(object(MaxMembers-1, `"a":1`)),
		"elements":     "[" + strings.Repeat("1,", 1<<19) + "1]",
		"objects":      "[" + strings.Repeat("{},", 1<<18) + "1]",
	} {
		data := []byte(in)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		accepts(data)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(20*len(in)+1<<20) {
			t.Errorf("%s: %d bytes allocated for %d", name, got, len(in))
		}
	}
}

// Numbers that share memory do not mix, however many there are.
func TestNumbersDoNotMix(t *testing.T) {
	d := NewDecoder([]byte(`[0,1,2,3,4,5,6,7]`))
	var n *Numbers
	var ints []*int
	for a := d.Array(); a.Next(); {
		ints = append(ints, d.IntPtr(&n))
	}
	for i, p := range ints {
		if *p != i {
			t.Errorf("integer %d is %d", i, *p)
		}
	}
	d.Reset([]byte(`[0,null,2,3,4,5,6,7]`))
	var floats []*float64
	for a := d.Array(); a.Next(); {
		floats = append(floats, d.FloatPtr(&n))
	}
	for i, p := range floats {
		if i == 1 && p != nil || i != 1 && *p != float64(i) {
			t.Errorf("number %d is %v", i, p)
		}
	}
	if *ints[0] != 0 || *ints[7] != 7 || d.Finish() != nil {
		t.Errorf("integers have changed, or %v", d.err)
	}
}

// Strings that share blocks do not mix, and no block keeps much alive.
func TestOwnedStringsDoNotMix(t *testing.T) {
	var want []string
	for i := range 3000 {
		want = append(want, strings.Repeat(string(rune('a'+i%26)), i%300)+strconv.Itoa(i))
	}
	doc, _ := json.Marshal(want)
	d := NewDecoder(doc)
	var got []string
	for a := d.Array(); a.Next(); {
		got = append(got, d.String())
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	clear(doc)
	if !reflect.DeepEqual(got, want) {
		t.Error("strings have changed")
	}
}

func TestRestart(t *testing.T) {
	texts := append(append([]string{}, valid...), invalid...)
	d := NewDecoder(nil)
	for round := range 2 {
		for i, text := range texts {
			d.Restart([]byte(text))
			// Documents that are read in part leave d in the midst of them.
			if i%3 == round {
				for o := d.Object(); o.Next(); {
					break
				}
				continue
			}
			d.Skip()
			if got, want := d.Finish(), accepts([]byte(text)); !reflect.DeepEqual(got, want) {
				t.Errorf("%q after others: %v, want %v", text, got, want)
			}
		}
	}
}
