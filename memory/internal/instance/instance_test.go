package instance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/memory/internal/instance"
)

// validate checks value by an implementation of JSON Schema that is not ours.
func validate(t *testing.T, schema, value string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("mem://schema", doc))
	compiled, err := c.Compile("mem://schema")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	require.NoError(t, err, value)
	require.NoError(t, compiled.Validate(v), value)
}

// The validator refuses the schemas of the cases whose names end in a star.
func TestOf(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"nothing":            {`{}`, `{}`},
		"true":               {`true`, `{}`},
		"unknown keywords":   {`{"foo":"bar"}`, `{}`},
		"null":               {`{"type":"null"}`, `null`},
		"boolean":            {`{"type":"boolean"}`, `true`},
		"integer":            {`{"type":"integer"}`, `1`},
		"number":             {`{"type":"number"}`, `1`},
		"string":             {`{"type":"string"}`, `"hi 👋🏽 <b>"`},
		"array":              {`{"type":"array"}`, `["hi 👋🏽 <b>"]`},
		"object":             {`{"type":"object"}`, `{}`},
		"null comes last":    {`{"type":["null","integer"]}`, `1`},
		"const":              {`{"const":{"a":[1,null]}}`, `{"a":[1,null]}`},
		"enum":               {`{"enum":["red","green"]}`, `"red"`},
		"enum of a type":     {`{"enum":["red",2],"type":"number"}`, `2`},
		"enums together":     {`{"allOf":[{"enum":[1,2]},{"enum":[3,2.0]}]}`, `2`},
		"not":                {`{"enum":[1,2],"not":{"const":1}}`, `2`},
		"not a type":         {`{"not":{"type":["string","object"]}}`, `1`},
		"minimum":            {`{"type":"integer","minimum":1.5}`, `2`},
		"exclusive minimum":  {`{"type":"integer","exclusiveMinimum":2}`, `3`},
		"draft 4":            {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":2,"exclusiveMinimum":true}`, `3`},
		"maximum":            {`{"type":"integer","maximum":-7}`, `-7`},
		"exclusive maximum":  {`{"type":"number","exclusiveMaximum":0}`, `-1`},
		"between":            {`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.5}`, `0.25`},
		"multiple":           {`{"type":"number","multipleOf":0.1,"minimum":0.25}`, `0.3`},
		"multiples":          {`{"allOf":[{"multipleOf":0.4},{"multipleOf":6}],"minimum":1}`, `6`},
		"large":              {`{"type":"integer","minimum":12345678901234567890}`, `12345678901234567890`},
		"minLength":          {`{"type":"string","minLength":12}`, `"hi 👋🏽 <b>..."`},
		"maxLength":          {`{"type":"string","maxLength":4}`, `"hi "`},
		"email":              {`{"type":"string","format":"email"}`, `"user@example.com"`},
		"date":               {`{"type":"string","format":"date"}`, `"2026-01-01"`},
		"date-time":          {`{"type":"string","format":"date-time"}`, `"2026-01-01T12:00:00Z"`},
		"time":               {`{"type":"string","format":"time"}`, `"12:00:00Z"`},
		"long address":       {`{"type":"string","format":"uri","minLength":25}`, `"https://example.com/xxxxx"`},
		"unknown format":     {`{"type":"string","format":"shout"}`, `"hi 👋🏽 <b>"`},
		"format without it":  {`{"format":"ipv4"}`, `"192.0.2.1"`},
		"pattern of text":    {`{"type":"string","pattern":"^hi"}`, `"hi 👋🏽 <b>"`},
		"pattern":            {`{"type":"string","pattern":"^[A-Z]{2}-\\d{3}(x|y)$"}`, `"AA-000x"`},
		"pattern and length": {`{"type":"string","pattern":"^a+b?[0-9]*$","minLength":6}`, `"aaaaaa"`},
		"pattern, ECMAScript*": {
			`{"type":"string","pattern":"^\\u0041\\/[\\u{62}]$"}`, `"A/b"`},
		"pattern beyond us*": {`{"type":"string","pattern":"^(?=hi)"}`, `"hi 👋🏽 <b>"`},
		"properties":         {`{"properties":{"b":{"type":"string"},"a":{"type":"integer"}}}`, `{"b":"hi 👋🏽 <b>","a":1}`},
		"required":           {`{"type":"object","required":["a"]}`, `{"a":"hi 👋🏽 <b>"}`},
		"impossible, left out": {
			`{"type":"object","properties":{"a":false,"b":{"const":1}}}`, `{"b":1}`},
		"minProperties":     {`{"type":"object","minProperties":2,"additionalProperties":{"type":"integer"}}`, `{"property1":1,"property2":1}`},
		"maxProperties":     {`{"type":"object","maxProperties":1,"required":["b"],"properties":{"a":{},"b":{"const":1}}}`, `{"b":1}`},
		"patternProperties": {`{"type":"object","minProperties":1,"patternProperties":{"^x-":{"const":1}},"additionalProperties":false}`, `{"x-":1}`},
		"propertyNames":     {`{"type":"object","minProperties":2,"propertyNames":{"pattern":"^[a-c]$"},"additionalProperties":{"const":1}}`, `{"a":1,"b":1}`},
		"dependentRequired": {`{"properties":{"a":{"const":1}},"dependentRequired":{"a":["b"],"b":["c"]},"additionalProperties":{"const":2}}`, `{"a":1,"b":2,"c":2}`},
		"dependentSchemas":  {`{"properties":{"a":{"const":1}},"dependentSchemas":{"a":{"properties":{"b":{"const":2}},"required":["b"]}}}`, `{"a":1,"b":2}`},
		"items":             {`{"items":{"type":"integer"},"minItems":3}`, `[1,2,3]`},
		"no items":          {`{"type":"array","items":false}`, `[]`},
		"maxItems":          {`{"type":"array","maxItems":0}`, `[]`},
		"prefixItems":       {`{"prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}`, `["hi 👋🏽 <b>",false]`},
		"items before 2020": {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":3}`, `[1,2,2]`},
		"uniqueItems":       {`{"items":{"enum":["a","b","c"]},"minItems":3,"uniqueItems":true}`, `["a","b","c"]`},
		"unique booleans":   {`{"items":{"type":"boolean"},"minItems":2,"uniqueItems":true}`, `[true,false]`},
		"unique objects":    {`{"items":{"properties":{"n":{"type":"integer"}}},"minItems":2,"uniqueItems":true}`, `[{"n":1},{"n":2}]`},
		"unique choices":    {`{"items":{"oneOf":[{"const":1},{"const":2}]},"minItems":2,"uniqueItems":true}`, `[1,2]`},
		"unique short":      {`{"items":{"type":"string","maxLength":1},"minItems":4,"uniqueItems":true}`, `["h","1","2","3"]`},
		"contains":          {`{"type":"array","contains":{"const":7},"minContains":2}`, `[7,7]`},
		"anyOf":             {`{"anyOf":[false,{"type":"integer"}]}`, `1`},
		"oneOf":             {`{"oneOf":[{"type":"integer"},{"type":"number"},{"type":"boolean"}]}`, `true`},
		"oneOf of required": {
			`{"properties":{"a":{"const":1},"b":{"const":2}},"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1}`},
		"discriminated": {
			`{"type":"object","required":["kind"],"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["x"]},{"properties":{"kind":{"const":"b"}}}]}`,
			`{"kind":"a","x":1}`},
		"allOf": {`{"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"type":"integer"},"b":{"const":1}}}]}`, `{"a":3,"b":1}`},
		"if, then": {
			`{"properties":{"a":{"enum":[1,2]}},"required":["a"],"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"],"properties":{"b":{"const":3}}}}`,
			`{"a":1,"b":3}`},
		"if, else":      {`{"type":"integer","if":{"minimum":10},"then":false,"else":{"minimum":5}}`, `5`},
		"$ref":          {`{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":1}`},
		"definitions":   {`{"definitions":{"a/b":{"type":"integer"}},"$ref":"#/definitions/a~1b"}`, `1`},
		"anchor":        {`{"$defs":{"n":{"$anchor":"here","type":"integer"}},"$ref":"#here"}`, `1`},
		"$id":           {`{"$id":"https://example.com/root","$defs":{"n":{"$id":"n","type":"integer"}},"$ref":"n"}`, `1`},
		"circle*":       {`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}],"type":"integer"}}}`, `1`},
		"recursion":     {`{"type":"object","properties":{"n":{"type":"integer"},"next":{"$ref":"#"}}}`, `{"n":1,"next":{"n":1}}`},
		"list":          {`{"type":"object","properties":{"n":{"type":"integer"},"all":{"type":"array","items":{"$ref":"#"}}},"required":["n","all"]}`, `{"n":1,"all":[{"n":1,"all":[]}]}`},
		"strict":        {`{"type":"object","properties":{"n":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["n","next"],"additionalProperties":false}`, `{"n":1,"next":{"n":1,"next":null}}`},
		"tree of leafs": {`{"$ref":"#/$defs/t","$defs":{"t":{"oneOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/l"}]},"b":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}},"required":["l","r"]},"l":{"type":"integer"}}}`, `{"l":1,"r":1}`},
		"endless, left out": {
			`{"type":"object","properties":{"n":{"const":1},"e":{"$ref":"#/$defs/e"}},"$defs":{"e":{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},"required":["e"]}}}`, `{"n":1}`},
		"pointers*": {`{"$ref":"#/allOf/1/items/0","allOf":[true,{"items":[{"type":"integer"}]}]}`, `1`},
		"nullable*": {`{"type":"integer","nullable":true,"not":{"type":"integer"}}`, `null`},
		"classes":   {`{"type":"string","pattern":"^[^a-zA-Z0-9!-~][à-ü][\\x00-\\x02][[:upper:]]?.*$","minLength":6}`, `" à\u0000Aaa"`},
		"patterns":  {`{"type":"array","items":{"type":"string","pattern":"^(x|[0-9])[ab]$"},"minItems":5,"uniqueItems":true}`, `["xa","0a","1a","2a","3a"]`},
		"word":      {`{"type":"string","pattern":"\\bnever\\b","maxLength":5}`, `"never"`},
		"formats": {`{"type":"array","items":{"type":"string","format":"email"},"minItems":3,"uniqueItems":true}`,
			`["user@example.com","user2@example.com","user3@example.com"]`},
		"one format of two": {`{"type":"string","oneOf":[{"format":"ipv4"},{"format":"ipv6"}]}`, `"192.0.2.1"`},
		"unique numbers":    {`{"items":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1},"minItems":4,"uniqueItems":true}`, `[0.5,0.25,0.75,0.125]`},
		"unique and down":   {`{"items":{"type":"integer","maximum":-1},"minItems":3,"uniqueItems":true}`, `[-1,-2,-3]`},
		"unique, below":     {`{"items":{"type":"number","exclusiveMaximum":-1},"minItems":2,"uniqueItems":true}`, `[-2,-3]`},
		"unique arrays":     {`{"items":{"items":{"enum":[1,2]},"minItems":1,"maxItems":1},"minItems":2,"uniqueItems":true}`, `[[1],[2]]`},
		"contains some":     {`{"type":"array","items":{"type":"integer"},"contains":{"minimum":7},"minItems":3,"maxContains":1}`, `[7,2,3]`},
		"dependencies": {
			`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"const":1}},"dependencies":{"a":["b"],"b":{"properties":{"c":{"const":3}}}}}`,
			`{"a":1,"c":3,"b":"hi 👋🏽 <b>"}`},
		"no such value of a type": {`{"allOf":[{"type":["string","number"]},{"type":["integer","null"]}]}`, `1`},
		"example as last resort":  {`{"type":"string","pattern":"^(a|b){3}\\bc$|^z\\b9?-$","examples":["z-"]}`, `"z-"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := instance.Of([]byte(test.schema), "hi 👋🏽 <b>")
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
			if !strings.HasSuffix(name, "*") {
				validate(t, test.schema, string(got))
			}
		})
	}
}

func TestObject(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`:            `{}`,
		`true`:          `{}`,
		`{"foo":"bar"}`: `{}`,
		`{"minimum":1}`: `{}`,
		`{"type":["string","object"],"required":["a"]}`:    `{"a":"x"}`,
		`{"anyOf":[{"type":"string"},{"required":["b"]}]}`: `{"b":"x"}`,
	} {
		got, err := instance.Object([]byte(schema), "x")
		require.NoError(t, err, schema)
		assert.Equal(t, want, string(got), schema)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"empty":         {``, "the schema is not JSON"},
		"cut":           {`{"type":`, "the schema is not JSON"},
		"two":           {`{} {}`, "the schema is not JSON"},
		"too deep":      {strings.Repeat(`{"not":`, 1000) + `{}` + strings.Repeat(`}`, 1000), "the schema is not JSON"},
		"too long":      {`{"title":"` + strings.Repeat("x", 1<<20) + `"}`, "the schema is too long"},
		"a number":      {`1`, "the schema is neither an object nor a boolean"},
		"false":         {`false`, "no value is valid under the schema"},
		"no type":       {`{"type":[]}`, "no value is valid under the schema"},
		"contradictory": {`{"type":"integer","minimum":2,"maximum":1}`, "no value is valid under the schema"},
		"endless":       {`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, ""},
		"elsewhere":     {`{"$ref":"https://example.com/x"}`, `cannot resolve the reference "https://example.com/x"`},
		"nowhere":       {`{"$ref":"#/$defs/x"}`, `cannot resolve the reference "#/$defs/x"`},
		"too many":      {`{"type":"array","minItems":1000000000}`, "the schema takes too long to follow"},
		"too large":     {`{"type":"string","minLength":1000000000}`, "the schema takes too long to follow"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := instance.Of([]byte(test.schema), "x")
			require.Error(t, err)
			if test.want != "" {
				assert.EqualError(t, err, test.want)
			}
		})
	}
}

// Schemas whose instances, or the search for them, would grow without bound.
// The validator refuses those whose names end in a star.
var bombs = map[string]string{
	"doubling": func() string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range 40 {
			next := `{"$ref":"#/$defs/d` + string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10)) + `"}`
			name := "d" + string(rune('0'+i/10)) + string(rune('0'+i%10))
			if i == 0 {
				name = "d0"
			}
			b.WriteString(`"` + name + `":{"type":"object","properties":{"l":` + next + `,"r":` + next + `},"required":["l","r"]},`)
		}
		b.WriteString(`"d40":{"type":"string"}}}`)
		return b.String()
	}(),
	"many choices": `{"allOf":[` + strings.Repeat(`{"anyOf":[{"minimum":1},{"minimum":2},{"minimum":3}]},`, 40) + `{"type":"integer","maximum":0}]}`,
	"wide recursion": func() string {
		var b strings.Builder
		b.WriteString(`{"type":"object","properties":{`)
		for i := range 200 {
			b.WriteString(`"p` + strings.Repeat("x", i) + `":{"$ref":"#"},`)
		}
		return b.String() + `"end":{"type":"string"}}}`
	}(),
	"long patterns*":   `{"type":"array","minItems":100,"items":{"type":"string","pattern":"^((a{1,30}){1,30}b?){1,4}$"}}`,
	"pattern too big*": `{"type":"string","pattern":"^((a{1,100}){1,100}){1,100}$"}`,
	"huge numbers*":    `{"type":"number","minimum":1e999999999,"multipleOf":1e-999999999}`,
	"numbers apart":    `{"type":"integer","allOf":[{"multipleOf":1e300},{"multipleOf":7e-300},{"minimum":13e-400}]}`,
	"deep":             strings.Repeat(`{"type":"object","required":["a"],"properties":{"a":`, 200) + `{"type":"string"}` + strings.Repeat(`}}`, 200),
	"unique integers":  `{"type":"array","minItems":600,"uniqueItems":true,"items":{"type":"integer"}}`,
	"many properties":  `{"type":"object","minProperties":2000}`,
	"many anyOf":       `{"type":"object","allOf":[` + strings.Repeat(`{"anyOf":[{"title":"a"},{"title":"b"}]},`, 10000) + `true]}`,
	"long chain": func() string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/r0","$defs":{`)
		for i := range 20000 {
			fmt.Fprintf(&b, `"r%d":{"$ref":"#/$defs/r%d"},`, i, i+1)
		}
		return b.String() + `"r20000":{"type":"integer"}}}`
	}(),
	"many required": func() string {
		var names []string
		for i := range 16000 {
			names = append(names, fmt.Sprintf(`"%d"`, i))
		}
		return `{"type":"object","required":[` + strings.Join(names, ",") + `],"additionalProperties":{"type":"integer"}}`
	}(),
	"mutual recursion": `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","required":["b"],"properties":{"b":{"type":"array","minItems":2,"items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/c"}]}}}},"c":{"type":"object","required":["a"],"properties":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"const":0}]}}}}}`,
}

func TestBombs(t *testing.T) {
	for name, schema := range bombs {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			got, err := instance.Of([]byte(schema), strings.Repeat("text ", 1000))
			t.Log(time.Since(begin), len(got), err)
			assert.Less(t, time.Since(begin), time.Minute)
			assert.Less(t, len(got), 8<<20)
			if err == nil && !strings.HasSuffix(name, "*") {
				validate(t, schema, string(got))
			}
		})
	}
}

func TestText(t *testing.T) {
	const schema = `{"type":"object","properties":{"name":{"type":"string"}}}`
	got, err := instance.Of([]byte(schema), "")
	require.NoError(t, err)
	assert.Equal(t, `{"name":"name"}`, string(got), "without a text, a string says what it is")

	got, err = instance.Of([]byte(schema), strings.Repeat("é", 5000))
	require.NoError(t, err)
	var v struct{ Name string }
	require.NoError(t, json.Unmarshal(got, &v))
	assert.Equal(t, 4096, utf8.RuneCountInString(v.Name))

	got, err = instance.Of([]byte(`{"type":"string","maxLength":8}`), "family 👨‍👩‍👧‍👦")
	require.NoError(t, err)
	assert.Equal(t, `"family "`, string(got), "an emoji is not cut")
}

func TestFormats(t *testing.T) {
	for _, format := range []string{"date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6",
		"uri", "iri", "uri-reference", "iri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer", "regex"} {
		t.Run(format, func(t *testing.T) {
			schema := `{"type":"array","items":{"type":"string","format":"` + format + `"},"minItems":40,"uniqueItems":true}`
			got, err := instance.Of([]byte(schema), "x")
			require.NoError(t, err)
			validate(t, schema, string(got))
			assert.NotContains(t, string(got), `"x"`)
		})
	}
}

func FuzzOf(f *testing.F) {
	for _, schema := range bombs {
		f.Add([]byte(schema), "text")
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"],"enum":["x",null]}},"required":["a"]}`,
		`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`,
		`{"type":"array","items":[{"$ref":"#"}],"contains":{"not":{}}}`,
		`{"type":"string","pattern":"^(\\p{L}+\\s?)*[^a-z]$","minLength":3,"maxLength":9}`,
		`{"if":{"$ref":"#"},"then":false,"else":{"$dynamicRef":"#"}}`,
		`{"type":"number","multipleOf":0.01,"exclusiveMinimum":1e-300}`,
		`{"dependencies":{"a":["b"],"b":{"required":["c"]}},"minProperties":3}`,
	} {
		f.Add([]byte(schema), "")
	}
	f.Fuzz(func(t *testing.T, schema []byte, text string) {
		if !utf8.ValidString(text) {
			t.Skip()
		}
		begin := time.Now()
		v, err := instance.Of(schema, text)
		if d := time.Since(begin); d > time.Minute {
			t.Fatalf("took %v", d)
		}
		if err == nil && !json.Valid(v) {
			t.Fatalf("not JSON: %s", v)
		}
		if o, err := instance.Object(schema, text); err == nil && !bytes.HasPrefix(o, []byte("{")) {
			t.Fatalf("not an object: %s", o)
		}
	})
}
