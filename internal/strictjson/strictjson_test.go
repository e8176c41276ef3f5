package strictjson

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
)

// A pair is an array of at most two elements.
type pair []int

func (p *pair) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '[' {
		v, err := dec.ReadValue()
		if *p = make(pair, strings.Count(string(v), ",")+1); len(*p) > 2 {
			return &Error{Kind: TooLong}
		}
		return err
	}
	if err := dec.SkipValue(); err != nil {
		return err
	}
	return &Error{Kind: WrongType, Want: "a pair"}
}

type document struct {
	Name  string         `json:"name"`
	Count *int           `json:"count"`
	Share float64        `json:"share"`
	Done  bool           `json:"done"`
	Map   map[string]int `json:"map"`
	List  []struct {
		Pair pair `json:"pair"`
	} `json:"list"`
	inner
}

type inner struct {
	Raw jsontext.Value `json:"raw"`
}

func TestUnmarshal(t *testing.T) {
	var d document
	assert.Nil(t, Unmarshal([]byte(` {"name":"a","count":3,"share":1e0,"done":true,"list":[{"pair":[1,2]}],"raw":{ },"names":1,"other":[{"NAME":null}]} `), &d))
	assert.Equal(t, "a", d.Name)
	assert.Equal(t, 3, *d.Count)
	assert.Equal(t, `{ }`, string(d.Raw))
	assert.Len(t, d.List[0].Pair, 2)
	assert.Nil(t, Unmarshal([]byte(`{"name":null,"count":null,"share":null,"done":null,"list":null}`), &d))
	assert.Zero(t, d.Name)
	assert.Nil(t, d.Count)
}

func TestUnmarshal_Errors(t *testing.T) {
	for doc, want := range map[string]Error{
		``:                                       {Kind: Syntax},
		`{`:                                      {Kind: Syntax},
		`{} {}`:                                  {Kind: Syntax},
		`{"x":01}`:                               {Kind: Syntax},
		`{"x":"` + "\xff" + `"}`:                 {Kind: Syntax},
		`{"x":"\ud800"}`:                         {Kind: Syntax},
		`{"name":"a","name":"b"}`:                {Kind: Duplicate, Path: "/name"},
		`{"x":1,"x":2}`:                          {Kind: Duplicate, Path: "/x"},
		`{"x":[0,{"a":1,"a":2}]}`:                {Kind: Duplicate, Path: "/x/1/a"},
		`{"raw":{"a":1,"a":2}}`:                  {Kind: Duplicate, Path: "/raw/a"},
		`{"name":"a","Name":"b"}`:                {Kind: WrongCase, Path: "/Name", Want: "name"},
		`{"NAME":[{"x":1}]}`:                     {Kind: WrongCase, Path: "/NAME", Want: "name"},
		`{"\u004eame":1,"x":2}`:                  {Kind: WrongCase, Path: "/Name", Want: "name"},
		"{\"\u017fhare\":1}":                     {Kind: WrongCase, Path: "/\u017fhare", Want: "share"},
		`{"RAW":1}`:                              {Kind: WrongCase, Path: "/RAW", Want: "raw"},
		`{"x":{"Name":1,"y":["}"]} , "Done" :1}`: {Kind: WrongCase, Path: "/Done", Want: "done"},
		`{"list":[ { } , {"Pair":[]}]}`:          {Kind: WrongCase, Path: "/list/1/Pair", Want: "pair"},
		`[]`:                                     {Kind: WrongType, Want: "an object"},
		`{"name":1}`:                             {Kind: WrongType, Path: "/name", Want: "a string"},
		`{"count":"1"}`:                          {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1.0}`:                          {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1e3}`:                          {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1e400}`:                        {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":99999999999999999999}`:         {Kind: OutOfRange, Path: "/count", Want: "an integer", Got: "99999999999999999999"},
		`{"share":true}`:                         {Kind: WrongType, Path: "/share", Want: "a number"},
		`{"share":1e400}`:                        {Kind: OutOfRange, Path: "/share", Want: "a number", Got: "1e400"},
		`{"done":1}`:                             {Kind: WrongType, Path: "/done", Want: "a boolean"},
		`{"map":[]}`:                             {Kind: WrongType, Path: "/map", Want: "an object"},
		`{"map":{"a/b":"c"}}`:                    {Kind: WrongType, Path: "/map/a~1b", Want: "an integer"},
		`{"list":{}}`:                            {Kind: WrongType, Path: "/list", Want: "an array"},
		`{"list":[{},1]}`:                        {Kind: WrongType, Path: "/list/1", Want: "an object"},
		`{"list":[{},{"pair":"x"}]}`:             {Kind: WrongType, Path: "/list/1/pair", Want: "a pair"},
		`{"list":[{},{"pair":[1,2,3]}]}`:         {Kind: TooLong, Path: "/list/1/pair"},
		`{"list":[{"pair":[1,{"a":0,"a":0}]}]}`:  {Kind: Duplicate, Path: "/list/0/pair/1/a"},
	} {
		t.Run(doc, func(t *testing.T) {
			assert.Equal(t, &want, Unmarshal([]byte(doc), new(document)))
		})
	}
}

func TestCheckBounds(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	list := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }
	for name, test := range map[string]struct {
		doc  string
		want *Error
	}{
		"deep":                 {nested(MaxDepth), nil},
		"too deep":             {nested(MaxDepth + 2), &Error{Kind: TooDeep}},
		"not closed":           {strings.Repeat("[", 1000), &Error{Kind: TooDeep}},
		"many values":          {list(MaxValues), nil},
		"too many values":      {list(MaxValues + 1), &Error{Kind: TooManyValues}},
		"too many empty":       {"[" + strings.Repeat("[],", MaxValues/2) + "[]]", &Error{Kind: TooManyValues}},
		"a text":               {`{"a":"` + strings.Repeat(`[{,\"\\`, MaxValues) + `"}`, nil},
		"a text without end":   {`["\`, nil},
		"values behind a text": {`["\\",` + list(MaxValues) + `]`, &Error{Kind: TooManyValues}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, CheckBounds([]byte(test.doc))) })
	}
}

// Values that are not decoded into structs may have any names.
func TestUnmarshal_FreeNames(t *testing.T) {
	var d document
	doc := `{"map":{"Name":1,"name":2,"LIST":3},"raw":[{"Name":1,"name":2},true],"x":{"Name":1},"y":-1.5e3,"list":null}`
	assert.Nil(t, Unmarshal([]byte(doc), &d))
	assert.Equal(t, map[string]int{"Name": 1, "name": 2, "LIST": 3}, d.Map)
}

func TestUnmarshalAllowed(t *testing.T) {
	var asked []string
	allows := func(name string) bool {
		asked = append(asked, name)
		return name != "x y"
	}
	assert.Nil(t, UnmarshalAllowed([]byte(`{"a":{"x y":1},"name":"n","list":[{"x y":1}],"b":[]}`), new(document), allows))
	assert.Equal(t, []string{"a", "b"}, asked)
	err := UnmarshalAllowed([]byte(`{"name":"n","x\u0020y":1}`), new(document), allows)
	assert.Equal(t, &Error{Kind: Unknown, Path: "/x y"}, err)
}

// FuzzUnmarshal compares with a decoder that looks at the names after it has decoded a
// document into maps.
func FuzzUnmarshal_Names(f *testing.F) {
	for _, doc := range []string{`{"list":[{"Pair":[1]}],"map":{"Name":1}}`, `{"a":"\\","Name":"\""}`, ` { "x" : [ {} , [] , "," ] , "NAME" : 1 } `, `{"\u212a":{},"\u004eame":0}`} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var tree map[string]any
		if json.Unmarshal([]byte(doc), &tree) != nil {
			return
		}
		var d document
		err := Unmarshal([]byte(doc), &d)
		if err != nil && err.Kind != WrongCase {
			return // the names were not looked at
		}
		wrong := hasWrongCase(tree, "name", "count", "share", "done", "map", "list", "raw")
		if list, ok := tree["list"].([]any); ok {
			for _, e := range list {
				element, _ := e.(map[string]any)
				wrong = wrong || hasWrongCase(element, "pair")
			}
		}
		assert.Equal(t, wrong, err != nil)
	})
}

func hasWrongCase(object map[string]any, fields ...string) bool {
	for name := range object {
		for _, f := range fields {
			if name != f && strings.EqualFold(name, f) {
				return true
			}
		}
	}
	return false
}
