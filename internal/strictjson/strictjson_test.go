package strictjson

import (
	"strings"
	"testing"

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
	assert.Nil(t, Unmarshal([]byte(` {"name":"a","count":3,"share":1e0,"done":true,"list":[{"pair":[1,2]}],"raw":{ },"NAME":1,"other":[{"x":null}]} `), &d))
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
		``:                                      {Kind: Syntax},
		`{`:                                     {Kind: Syntax},
		`{} {}`:                                 {Kind: Syntax},
		`{"x":01}`:                              {Kind: Syntax},
		`{"x":"` + "\xff" + `"}`:                {Kind: Syntax},
		`{"x":"\ud800"}`:                        {Kind: Syntax},
		`{"name":"a","name":"b"}`:               {Kind: Duplicate, Path: "/name"},
		`{"x":1,"x":2}`:                         {Kind: Duplicate, Path: "/x"},
		`{"x":[0,{"a":1,"a":2}]}`:               {Kind: Duplicate, Path: "/x/1/a"},
		`{"raw":{"a":1,"a":2}}`:                 {Kind: Duplicate, Path: "/raw/a"},
		`[]`:                                    {Kind: WrongType, Want: "an object"},
		`{"name":1}`:                            {Kind: WrongType, Path: "/name", Want: "a string"},
		`{"count":"1"}`:                         {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1.0}`:                         {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1e3}`:                         {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":1e400}`:                       {Kind: WrongType, Path: "/count", Want: "an integer"},
		`{"count":99999999999999999999}`:        {Kind: OutOfRange, Path: "/count", Want: "an integer"},
		`{"share":true}`:                        {Kind: WrongType, Path: "/share", Want: "a number"},
		`{"share":1e400}`:                       {Kind: OutOfRange, Path: "/share", Want: "a number"},
		`{"done":1}`:                            {Kind: WrongType, Path: "/done", Want: "a boolean"},
		`{"map":[]}`:                            {Kind: WrongType, Path: "/map", Want: "an object"},
		`{"map":{"a/b":"c"}}`:                   {Kind: WrongType, Path: "/map/a~1b", Want: "an integer"},
		`{"list":{}}`:                           {Kind: WrongType, Path: "/list", Want: "an array"},
		`{"list":[{},1]}`:                       {Kind: WrongType, Path: "/list/1", Want: "an object"},
		`{"list":[{},{"pair":"x"}]}`:            {Kind: WrongType, Path: "/list/1/pair", Want: "a pair"},
		`{"list":[{},{"pair":[1,2,3]}]}`:        {Kind: TooLong, Path: "/list/1/pair"},
		`{"list":[{"pair":[1,{"a":0,"a":0}]}]}`: {Kind: Duplicate, Path: "/list/0/pair/1/a"},
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
