package jsonwire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/stretchr/testify/assert"
)

// A pair is a string or an array.
type pair struct {
	text string
	list []int
	all  Value
}

func (p *pair) DecodeTags(d *Decoder) {
	p.all = d.Text(func() {
		switch d.Kind() {
		case '"':
			p.text = d.String()
		case '[':
			d.ByTags(&p.list)
		default:
			d.Mismatch("a pair")
		}
	})
}

type tagged struct {
	Name  string         `json:"name"`
	Count *int           `json:"count"`
	Share float64        `json:"share"`
	Done  bool           `json:"done"`
	Map   map[string]int `json:"map"`
	List  []struct {
		Pair pair `json:"pair"`
	} `json:"list"`
	Child *tagged   `json:"child"`
	Time  time.Time `json:"time"`
	taggedInner
	hidden int
}

type taggedInner struct {
	Raw Value   `json:"raw"`
	All []Value `json:"all"`
}

func TestUnmarshalTags(t *testing.T) {
	var v tagged
	doc := ` {"name":"a","count":3e0,"share":1e0,"done":true,"map":{"A":1,"a":2},"list":[{"pair":[1, 2]},{"pair":"x"},{}],"raw": { } ,"all":[null,"b"],
		"child":{"child":{"name":"c"}},"time":"2026-01-02T03:04:05Z","names":1,"other":[{"NAME":null}]} `
	assert.Nil(t, UnmarshalTags(doc, &v, nil))
	assert.Equal(t, "a", v.Name)
	assert.Equal(t, 3, *v.Count)
	assert.Equal(t, 1.0, v.Share)
	assert.True(t, v.Done)
	assert.Equal(t, map[string]int{"A": 1, "a": 2}, v.Map)
	assert.Equal(t, pair{list: []int{1, 2}, all: `[1, 2]`}, v.List[0].Pair)
	assert.Equal(t, pair{text: "x", all: `"x"`}, v.List[1].Pair)
	assert.Len(t, v.List, 3)
	assert.Equal(t, Value(`{ }`), v.Raw)
	assert.Equal(t, []Value{"null", `"b"`}, v.All)
	assert.Equal(t, "c", v.Child.Child.Name)
	assert.Equal(t, 2026, v.Time.Year())
	assert.Zero(t, v.hidden)

	v = tagged{}
	assert.Nil(t, UnmarshalTags([]byte(`{"name":null,"count":null,"share":null,"done":null,"map":null,"list":null,"child":null,"raw":null,"time":null}`), &v, nil))
	assert.Equal(t, tagged{}, v)
	assert.Panics(t, func() { UnmarshalTags("1", new(chan int), nil) })
	assert.Panics(t, func() {
		UnmarshalTags("{}", new(struct {
			X int `json:"X"`
		}), nil)
	})
}

func TestUnmarshalTags_Errors(t *testing.T) {
	mismatch := func(path, want, got string) Error { return Error{Kind: WrongType, Path: path, Want: want, Got: got} }
	for doc, want := range map[string]Error{
		``:                               {Kind: Syntax},
		`{`:                              {Kind: Syntax},
		`{} {}`:                          {Kind: Syntax},
		`{"x":01}`:                       {Kind: Syntax},
		`{"x":"` + "\xff" + `"}`:         {Kind: Syntax},
		`{"x":"\ud800"}`:                 {Kind: Syntax},
		`{"name":"a","name":"b"}`:        {Kind: Duplicate, Path: "name"},
		`{"x":1,"x":2}`:                  {Kind: Duplicate, Path: "x"},
		`{"x":[0,{"a":1,"a":2}]}`:        {Kind: Duplicate, Path: "x[1].a"},
		`{"raw":{"a":1,"a":2}}`:          {Kind: Duplicate, Path: "raw.a"},
		`{"map":{"a":1,"a":2}}`:          {Kind: Duplicate, Path: "map.a"},
		`{"name":"a","Name":"b"}`:        {Kind: WrongCase, Path: "Name", Want: "name"},
		`{"NAME":[{"x":1}]}`:             {Kind: WrongCase, Path: "NAME", Want: "name"},
		`{"\u004eame":1,"x":2}`:          {Kind: WrongCase, Path: "Name", Want: "name"},
		"{\"\u017fhare\":1}":             {Kind: WrongCase, Path: "\u017fhare", Want: "share"},
		`{"RAW":1}`:                      {Kind: WrongCase, Path: "RAW", Want: "raw"},
		`{"list":[ { } , {"Pair":[]}]}`:  {Kind: WrongCase, Path: "list[1].Pair", Want: "pair"},
		`{"child":{"Name":1}}`:           {Kind: WrongCase, Path: "child.Name", Want: "name"},
		`[]`:                             mismatch("", "an object", "an array"),
		`null`:                           mismatch("", "an object", "null"),
		`{"name":1}`:                     mismatch("name", "a string", "an integer"),
		`{"count":"1"}`:                  mismatch("count", "an integer", "a string"),
		`{"count":1.5}`:                  mismatch("count", "an integer", "a decimal number"),
		`{"count":99999999999999999999}`: {Kind: OutOfRange, Path: "count", Integer: true, Above: true, Limit: MaxInteger, Got: "99999999999999999999"},
		`{"share":true}`:                 mismatch("share", "a number", "a boolean"),
		`{"done":1}`:                     mismatch("done", "a boolean", "an integer"),
		`{"map":[]}`:                     mismatch("map", "an object", "an array"),
		`{"map":{"a/b":"c"}}`:            mismatch("map.a/b", "an integer", "a string"),
		`{"map":{"a":null}}`:             mismatch("map.a", "an integer", "null"),
		`{"list":{}}`:                    mismatch("list", "an array", "an object"),
		`{"list":[{},1]}`:                mismatch("list[1]", "an object", "an integer"),
		`{"list":[null]}`:                mismatch("list[0]", "an object", "null"),
		`{"list":[{},{"pair":1}]}`:       mismatch("list[1].pair", "a pair", "an integer"),
		`{"list":[{"pair":[1,"a"]}]}`:    mismatch("list[0].pair[1]", "an integer", "a string"),
		`{"all":[` + strings.Repeat("0,", MaxElements) + `0]}`: {Kind: TooLong, Path: "all", Limit: MaxElements, Length: MaxElements + 1},
	} {
		t.Run(doc[:min(len(doc), 40)], func(t *testing.T) { assert.Equal(t, &want, UnmarshalTags(doc, new(tagged), nil)) })
	}
	err := UnmarshalTags(`{"time":"x"}`, new(tagged), nil)
	assert.Equal(t, Other, err.Kind)
	assert.Equal(t, "time", err.Path)
	assert.Error(t, err.Err)
}

// The values of a whole document are bounded, also those that are skipped or kept.
func TestUnmarshalTags_Bounds(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	lists := func(values int) string { // of 101 values each
		return "[" + strings.Repeat("["+strings.Repeat("0,", 99)+"0],", values/101) + "0]"
	}
	for _, member := range []string{"x", "raw"} {
		for doc, want := range map[string]*Error{
			nested(MaxDepth - 2):                                   nil,
			nested(MaxDepth):                                       {Kind: TooDeep},
			lists(MaxTaggedValues - 200):                           nil,
			lists(MaxTaggedValues + 200):                           {Kind: TooManyValues},
			`"` + strings.Repeat(`[{,\"\\`, MaxTaggedValues) + `"`: nil,
		} {
			assert.Equal(t, want, UnmarshalTags(`{"`+member+`":`+doc+`}`, new(tagged), nil))
		}
	}
}

func TestUnmarshalTags_Allows(t *testing.T) {
	var asked []string
	allows := func(name string) bool {
		asked = append(asked, name)
		return name != "x y"
	}
	assert.Nil(t, UnmarshalTags(`{"a":{"x y":1},"name":"n","child":{"x y":1},"list":[{"x y":1}],"b":[]}`, new(tagged), allows))
	assert.Equal(t, []string{"a", "b"}, asked)
	assert.Equal(t, &Error{Kind: Unknown, Path: "x y"}, UnmarshalTags(`{"name":"n","x\u0020y":1}`, new(tagged), allows))
}

// Members without a field are kept where a struct has Others, at each level.
func TestUnmarshalTags_Others(t *testing.T) {
	type inner struct {
		X int `json:"x"`
		Others
	}
	var v struct {
		Name string  `json:"name"`
		List []inner `json:"list"`
		Rest Others
	}
	doc := `{"a\u0062":{"name": 1},"name":"n","none":null,"list":[{"x":1,"Y":[ 2 ]},{}]}`
	assert.Nil(t, UnmarshalTags(doc, &v, nil))
	assert.Equal(t, Others{"ab": json.RawMessage(`{"name": 1}`)}, v.Rest)
	assert.Equal(t, Others{"Y": json.RawMessage(`[ 2 ]`)}, v.List[0].Others)
	assert.Nil(t, v.List[1].Others)
	for doc, kind := range map[string]ErrorKind{
		`{"a":1,"a":2}`: Duplicate, `{"a":null,"a":1}`: Duplicate, `{"NAME":1}`: WrongCase, `{"a":}`: Syntax, `{"b":1}`: Unknown,
	} {
		v.Rest = nil
		e := UnmarshalTags(doc, &v, func(name string) bool { return name != "b" })
		if assert.NotNil(t, e, doc) {
			assert.Equal(t, kind, e.Kind, doc)
		}
	}
}

func TestValue(t *testing.T) {
	for v, kind := range map[Value]byte{"": 0, "null": 'n', "true": 't', "false": 'f', "-1": '0', `"a"`: '"', "[]": '[', "{}": '{'} {
		assert.Equal(t, kind, v.Kind(), "%s", v)
		assert.Equal(t, v == "" || v == "null", v.IsNull())
	}
	b, err := json.Marshal(map[string]Value{"a": "", "b": ` {"x": 1}`})
	assert.NoError(t, err)
	assert.Equal(t, `{"a":null,"b":{"x":1}}`, string(b))
}

// What UnmarshalTags accepts is strict JSON, and decoded as encoding/json decodes it; of names it
// refuses those that encoding/json takes for another one.
func FuzzUnmarshalTags(f *testing.F) {
	for _, doc := range []string{
		`{"list":[{"Pair":[1]}],"map":{"Name":1}}`, `{"name":"\\","Name":"\""}`, ` { "x" : [ {} , [] , "," ] , "NAME" : 1 } `,
		`{"\u212a":{},"\u004eame":0}`, `{"name":"a","count":7,"share":0.5,"done":true,"all":[1,{"a":[]}],"raw":{"b":[1,2]},"child":{"name":"c"}}`,
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		type node struct {
			Name  string  `json:"name"`
			Share float64 `json:"share"`
			Done  bool    `json:"done"`
			Child *node   `json:"child"`
			All   []Value `json:"all"`
		}
		var got node
		if UnmarshalTags(doc, &got, nil) != nil {
			return
		}
		assert.True(t, jsontest.IsStrict(doc), "%q", doc)
		type wanted struct {
			Name  string            `json:"name"`
			Share float64           `json:"share"`
			Done  bool              `json:"done"`
			Child *wanted           `json:"child"`
			All   []json.RawMessage `json:"all"`
		}
		var want wanted
		assert.NoError(t, json.Unmarshal([]byte(doc), &want))
		assert.Equal(t, want.Name, got.Name)
		assert.Equal(t, want.Share, got.Share)
		assert.Equal(t, want.Done, got.Done)
		assert.Equal(t, want.Child == nil, got.Child == nil)
		assert.Len(t, got.All, len(want.All))
		for i := range got.All {
			assert.Equal(t, string(want.All[i]), string(got.All[i]))
		}
	})
}
