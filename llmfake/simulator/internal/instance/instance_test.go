package instance_test

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake/simulator/internal/instance"
)

// requireValid checks value against schema without the options that Make sets.
func requireValid(t *testing.T, schema, value string) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("mem://schema", document))
	compiled, err := c.Compile("mem://schema")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	require.NoError(t, err, value)
	require.NoError(t, compiled.Validate(v), value)
}

func TestMake(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"empty schema":         {`{}`, `{}`},
		"true":                 {`true`, `{}`},
		"unknown keyword":      {`{"foo":"bar"}`, `{}`},
		"null":                 {`{"type":"null"}`, `null`},
		"boolean":              {`{"type":"boolean"}`, `true`},
		"integer":              {`{"type":"integer"}`, `1`},
		"number":               {`{"type":"number"}`, `1`},
		"string":               {`{"type":"string"}`, `"hi 👋🏽 <b>"`},
		"array":                {`{"type":"array"}`, `["hi 👋🏽 <b>"]`},
		"object":               {`{"type":"object"}`, `{}`},
		"null is the last one": {`{"type":["null","integer"]}`, `1`},

		"const":                {`{"const":{"a":[1,null]}}`, `{"a":[1,null]}`},
		"const of null":        {`{"const":null}`, `null`},
		"enum":                 {`{"enum":["red","green"]}`, `"red"`},
		"enum and type":        {`{"enum":["red",2],"type":"number"}`, `2`},
		"enum and enum":        {`{"allOf":[{"enum":[1,2]},{"enum":[3,2]}]}`, `2`},
		"enum and not":         {`{"enum":[1,2],"not":{"const":1}}`, `2`},
		"integer beyond int64": {`{"const":12345678901234567890}`, `12345678901234567890`},

		"minimum":                   {`{"type":"integer","minimum":1.5}`, `2`},
		"exclusiveMinimum":          {`{"type":"integer","exclusiveMinimum":2}`, `3`},
		"exclusiveMinimum, draft 4": {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":2,"exclusiveMinimum":true}`, `3`},
		"maximum":                   {`{"type":"integer","maximum":-7}`, `-7`},
		"exclusiveMaximum":          {`{"type":"number","exclusiveMaximum":0}`, `-1`},
		"between bounds":            {`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.5}`, `0.25`},
		"bounds of safe integers":   {`{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}`, `1`},
		"large minimum":             {`{"type":"integer","minimum":12345678901234567890}`, `12345678901234567890`},
		"multipleOf":                {`{"type":"number","multipleOf":0.1,"minimum":1.25}`, `1.3`},
		"multipleOf two numbers":    {`{"allOf":[{"multipleOf":0.4},{"multipleOf":6}],"minimum":1}`, `12`},
		"integer, multipleOf":       {`{"type":"integer","multipleOf":2.5}`, `5`},

		"minLength":             {`{"type":"string","minLength":12}`, `"hi 👋🏽 <b>..."`},
		"maxLength":             {`{"type":"string","maxLength":4}`, `"hi "`},
		"unknown format":        {`{"type":"string","format":"shout"}`, `"hi 👋🏽 <b>"`},
		"pattern of the text":   {`{"type":"string","pattern":"^hi"}`, `"hi 👋🏽 <b>"`},
		"pattern":               {`{"type":"string","pattern":"^[A-Z]{2}-\\d{3}(x|y)z+.?[^a-z]$"}`, `"AA-000xz0"`},
		"one format of two":     {`{"type":"string","oneOf":[{"format":"ipv4"},{"format":"ipv6"}]}`, `"192.0.2.1"`},
		"pattern and minLength": {`{"type":"string","pattern":"^h","minLength":10}`, `"hi 👋🏽 <b>."`},

		"properties":               {`{"properties":{"b":{"type":"string"},"a":{"type":"integer"}}}`, `{"b":"hi 👋🏽 <b>","a":1}`},
		"order of nested objects":  {`{"properties":{"x":{"properties":{"b":{"const":1},"a":{"const":2}}},"y":{"properties":{"a":{"const":3},"b":{"const":4}}}}}`, `{"x":{"b":1,"a":2},"y":{"a":3,"b":4}}`},
		"names that need escapes":  {`{"$id":"https://example.com/s","properties":{"z/ %~\"":{"const":1},"ä":{"const":2},"a":{"const":3}}}`, `{"z/ %~\"":1,"ä":2,"a":3}`},
		"required":                 {`{"type":"object","required":["a"]}`, `{"a":"hi 👋🏽 <b>"}`},
		"required, additional":     {`{"type":"object","required":["a","b"],"additionalProperties":{"type":"integer"}}`, `{"a":1,"b":1}`},
		"optional without a value": {`{"type":"object","properties":{"a":false,"b":{"const":1}}}`, `{"b":1}`},
		"additionalProperties":     {`{"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false}`, `{"a":null}`},
		"minProperties":            {`{"type":"object","minProperties":2,"properties":{"property1":{"const":1}},"additionalProperties":{"type":"integer"}}`, `{"property1":1,"property2":1}`},
		"maxProperties":            {`{"type":"object","maxProperties":1,"required":["b"],"properties":{"a":{},"b":{"const":1}}}`, `{"b":1}`},
		"propertyNames":            {`{"type":"object","required":["a"],"propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"boolean"}}`, `{"a":true}`},
		"dependentRequired":        {`{"properties":{"a":{"const":1},"b":{"const":2}},"dependentRequired":{"a":["b"]}}`, `{"a":1,"b":2}`},

		"items":                   {`{"items":{"type":"integer"},"minItems":3}`, `[1,2,3]`},
		"no items":                {`{"type":"array","items":false}`, `[]`},
		"maxItems":                {`{"type":"array","maxItems":0}`, `[]`},
		"few values, many items":  {`{"type":"array","items":{"type":"integer","minimum":2,"maximum":3},"minItems":3}`, `[2,3,2]`},
		"prefixItems":             {`{"prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}`, `["hi 👋🏽 <b>",false]`},
		"list of items, draft 7":  {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":3}`, `[1,2,2]`},
		"uniqueItems":             {`{"items":{"enum":["a","b","c"]},"minItems":3,"uniqueItems":true}`, `["a","b","c"]`},
		"uniqueItems, boolean":    {`{"items":{"type":"boolean"},"minItems":2,"uniqueItems":true}`, `[true,false]`},
		"uniqueItems, string":     {`{"items":{"type":"string"},"minItems":2,"uniqueItems":true}`, `["hi 👋🏽 <b>","hi 👋🏽 <b> 2"]`},
		"uniqueItems, object":     {`{"items":{"properties":{"n":{"type":"integer"}}},"minItems":2,"uniqueItems":true}`, `[{"n":1},{"n":2}]`},
		"uniqueItems, oneOf":      {`{"items":{"oneOf":[{"const":1},{"const":2}]},"minItems":2,"uniqueItems":true}`, `[1,2]`},
		"uniqueItems, format":     {`{"type":"array","items":{"type":"string","format":"email"},"minItems":2,"uniqueItems":true}`, `["user1@example.com","user2@example.com"]`},
		"uniqueItems, range":      {`{"items":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1},"minItems":3,"uniqueItems":true}`, `[0.5,0.25,0.125]`},
		"uniqueItems, descending": {`{"items":{"type":"integer","maximum":-1},"minItems":3,"uniqueItems":true}`, `[-1,-2,-3]`},

		"anyOf":             {`{"anyOf":[false,{"type":"integer"}]}`, `1`},
		"oneOf":             {`{"oneOf":[{"type":"integer"},{"type":"number"},{"type":"boolean"}]}`, `true`},
		"oneOf of required": {`{"properties":{"a":{"const":1},"b":{"const":2}},"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1}`},
		"oneOf with a tag": {
			`{"type":"object","required":["kind"],"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["x"]},{"properties":{"kind":{"const":"b"}}}]}`,
			`{"kind":"a","x":1}`},
		"allOf":          {`{"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"type":"integer"},"b":{"const":1}}}]}`, `{"a":3,"b":1}`},
		"allOf of types": {`{"allOf":[{"type":["string","number"]},{"type":["integer","null"]}]}`, `1`},
		"if":             {`{"type":"integer","if":{"minimum":10},"then":false,"else":{"maximum":5}}`, `1`},

		"$ref to $defs":       {`{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":1}`},
		"$ref to definitions": {`{"definitions":{"a/b":{"type":"integer"}},"$ref":"#/definitions/a~1b"}`, `1`},
		"$ref to an $anchor":  {`{"$defs":{"n":{"$anchor":"here","type":"integer"}},"$ref":"#here"}`, `1`},
		"$ref to an $id":      {`{"$id":"https://example.com/root","$defs":{"n":{"$id":"n","type":"integer"}},"$ref":"n"}`, `1`},
		"recursive property":  {`{"type":"object","properties":{"n":{"type":"integer"},"next":{"$ref":"#"}}}`, `{"n":1,"next":{"n":1}}`},
		"recursive items": {
			`{"type":"object","properties":{"n":{"type":"integer"},"all":{"type":"array","items":{"$ref":"#"}}},"required":["n","all"]}`,
			`{"n":1,"all":[{"n":1,"all":[]}]}`},
		"recursive anyOf": {
			`{"type":"object","properties":{"n":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["n","next"],"additionalProperties":false}`,
			`{"n":1,"next":{"n":1,"next":null}}`},
		"recursive tree": {
			`{"$ref":"#/$defs/t","$defs":{"t":{"oneOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/l"}]},"b":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"}},"required":["l"]},"l":{"type":"integer"}}}`,
			`{"l":1}`},
		"optional without end": {
			`{"type":"object","properties":{"n":{"const":1},"e":{"$ref":"#/$defs/e"}},"$defs":{"e":{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},"required":["e"]}}}`, `{"n":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := instance.Make([]byte(test.schema), "hi 👋🏽 <b>", false)
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
			requireValid(t, test.schema, test.want)
		})
	}
}

// The schemas are what zod 4 and pydantic 2 make.
func TestMake_SchemasOfClients(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"zod": {
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{
				"email":{"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},
				"id":{"type":"string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$"},
				"time":{"type":"string","pattern":"^(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?$"},
				"meal":{"type":"string","enum":["breakfast","lunch"]},
				"note":{"anyOf":[{"type":"string"},{"type":"null"}]},
				"counts":{"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"number"}},
				"never":{"not":{}},
				"pair":{"type":"array","items":[{"type":"string"},{"type":"integer","minimum":2,"maximum":8}]},
				"steps":{"minItems":1,"type":"array","items":{"type":"object","properties":{"minutes":{"type":"number","exclusiveMinimum":0}},"required":["minutes"],"additionalProperties":false}}},
				"required":["email","id","time","meal","note","counts","pair","steps"],"additionalProperties":false}`,
			`{"email":"user1@example.com","id":"00000000-0000-4000-8000-000000000001","time":"00:00","meal":"breakfast","note":"Hello","counts":{},"pair":["Hello",3],"steps":[{"minutes":1}]}`},
		"pydantic": {
			`{"$defs":{"Color":{"enum":["red","blue"],"title":"Color","type":"string"},
				"Node":{"properties":{"v":{"title":"V","type":"integer"},"left":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}],"default":null},
					"kids":{"default":[],"items":{"$ref":"#/$defs/Node"},"title":"Kids","type":"array"}},"required":["v"],"title":"Node","type":"object"}},
				"additionalProperties":false,"title":"Answer","type":"object","properties":{
				"color":{"anyOf":[{"$ref":"#/$defs/Color"},{"type":"null"}]},
				"day":{"format":"date","title":"Day","type":"string"},
				"price":{"anyOf":[{"type":"number"},{"pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$","type":"string"}],"title":"Price"},
				"zip":{"pattern":"^\\d{5}(-\\d{4})?$","title":"Zip","type":"string"},
				"share":{"exclusiveMaximum":1,"exclusiveMinimum":0,"title":"Share","type":"number"},
				"set":{"items":{"type":"integer"},"minItems":2,"title":"Set","type":"array","uniqueItems":true},
				"pair":{"maxItems":2,"minItems":2,"prefixItems":[{"type":"integer"},{"type":"string"}],"title":"Pair","type":"array"},
				"data":{"additionalProperties":{"type":"integer"},"minProperties":1,"title":"Data","type":"object"},
				"any":{"title":"Any"},
				"node":{"$ref":"#/$defs/Node"}},
				"required":["color","day","price","zip","share","set","pair","data","any","node"]}`,
			`{"color":"red","day":"2026-01-01","price":1,"zip":"00000","share":0.5,"set":[1,2],"pair":[1,"Hello 2"],"data":{"property1":1},"any":"Hello",` +
				`"node":{"v":1,"left":{"v":1,"left":null,"kids":[]},"kids":[{"v":1,"left":null,"kids":[]}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := instance.Make([]byte(test.schema), "Hello", false)
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
		})
	}
}

func TestMake_ObjectOnly(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`:            `{}`,
		`true`:          `{}`,
		`{"foo":"bar"}`: `{}`,
		`{"minimum":1}`: `{}`,
		`{"type":["string","object"],"required":["a"]}`:    `{"a":"x"}`,
		`{"anyOf":[{"type":"string"},{"required":["b"]}]}`: `{"b":"x"}`,
	} {
		got, err := instance.Make([]byte(schema), "x", true)
		require.NoError(t, err, schema)
		assert.Equal(t, want, string(got), schema)
	}
	_, err := instance.Make([]byte(`{"type":"string"}`), "x", true)
	assert.EqualError(t, err, `found no value that satisfies "type" at "#"`)
}

func TestMake_Errors(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"empty":              {``, "the schema is not JSON"},
		"cut":                {`{"type":`, "the schema is not JSON"},
		"two values":         {`{} {}`, "the schema is not JSON"},
		"duplicate member":   {`{"type":"null","type":"null"}`, "the schema is not JSON"},
		"number":             {`1`, `the schema is invalid at "#/"`},
		"invalid keyword":    {`{"properties":{"a":{"type":"text"}}}`, `the schema is invalid at "#/properties/a/type"`},
		"types exclude":      {`{"type":"integer","allOf":[{"type":"string"}]}`, `found no value that satisfies "type" at "#"`},
		"false":              {`false`, `found no value that satisfies "false" at "#"`},
		"bounds":             {`{"type":"integer","minimum":2,"maximum":1}`, `found no value that satisfies "minimum" at "#"`},
		"nested property":    {`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","pattern":"\\bx\\b","maxLength":0},"minItems":1}},"required":["a"]}`, `found no value that satisfies "pattern" at "#/properties/a/items"`},
		"not":                {`{"type":"string","not":{"minLength":1}}`, `found no value that satisfies "not" at "#"`},
		"if":                 {`{"type":"object","required":["a"],"if":true,"then":{"required":["b"]}}`, `found no value that satisfies "required" at "#/then"`},
		"minItems":           {`{"type":"array","minItems":3,"maxItems":2}`, `found no value that satisfies "minItems" at "#"`},
		"uniqueItems":        {`{"type":"array","minItems":3,"uniqueItems":true,"items":{"type":"boolean"}}`, `found no value that satisfies "uniqueItems" at "#"`},
		"propertyNames":      {`{"type":"object","minProperties":1,"propertyNames":{"maxLength":2}}`, `found no value that satisfies "maxLength" at "#/propertyNames"`},
		"format and length":  {`{"type":"string","format":"uuid","maxLength":5}`, `found no value that satisfies "maxLength" at "#"`},
		"pattern, lookahead": {`{"type":"string","pattern":"^(?=hi)"}`, `found no value that satisfies "pattern" at "#"`},
		"contains":           {`{"type":"array","contains":{"const":7}}`, `the keyword "contains" is not supported`},
		"dependentSchemas":   {`{"dependentSchemas":{"a":true}}`, `the keyword "dependentSchemas" is not supported`},
		"required recursion": {`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "the schema has no value of finite depth"},
		"cycle":              {`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}`, `found no value that satisfies "$ref" at "#"`},
		"$ref to a file":     {`{"$ref":"file:///etc/passwd"}`, `cannot resolve the reference "file:///etc/passwd"`},
		"$ref to a host":     {`{"$ref":"https://example.com/x"}`, `cannot resolve the reference "https://example.com/x"`},
		"$ref to nothing":    {`{"$ref":"#/$defs/x"}`, `cannot resolve the reference "#/$defs/x"`},
		"$ref to no anchor":  {`{"$ref":"#x"}`, `cannot resolve the reference "#x"`},
		"$schema of a host":  {`{"$schema":"https://example.com/x"}`, `cannot resolve the reference "https://example.com/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := instance.Make([]byte(test.schema), "x", false)
			assert.EqualError(t, err, test.want)
			assert.Empty(t, got)
		})
	}
}

// hostile has schemas with a very large value, or with a value that a simple
// search or validation would take very long for.
func hostile() map[string]string {
	// chain returns a schema whose definitions each use the next one.
	chain := func(n int, last, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"d%d":%s,`, i, strings.ReplaceAll(format, "NEXT", fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)))
		}
		return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":%s}}`, b.String(), n, last)
	}
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format+",", i)
		}
		return b.String()
	}
	return map[string]string{
		"long":                   `{"title":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep":                   strings.Repeat(`{"not":`, 5000) + `{}` + strings.Repeat(`}`, 5000),
		"very deep":              strings.Repeat(`{"not":`, 100_000) + `{}` + strings.Repeat(`}`, 100_000),
		"many subschemas":        `{"properties":{` + list(20000, `"p%d":{}`) + `"last":{}}}`,
		"long names":             `{"properties":{"` + strings.Repeat("x", 100_000) + `":{"properties":{` + list(5000, `"p%d":{}`) + `"last":{}}}}}`,
		"minItems":               `{"type":"array","minItems":1000000000}`,
		"minLength":              `{"type":"string","minLength":1000000000}`,
		"minProperties":          `{"type":"object","minProperties":1000000000}`,
		"huge minItems":          `{"type":"array","minItems":1e300}`,
		"huge minLength":         `{"type":"string","minLength":1e300}`,
		"unique integers":        `{"type":"array","minItems":100000,"uniqueItems":true,"items":{"type":"integer"}}`,
		"many required":          `{"type":"object","required":[` + list(50000, `"%d"`) + `"last"],"additionalProperties":{"type":"integer"}}`,
		"long enum":              `{"type":"array","minItems":10000,"items":{"enum":[` + list(50000, `%d`) + `"last"],"type":"string"}}`,
		"exponents":              `{"type":"number","minimum":1e999999999,"multipleOf":1e-999999999}`,
		"many multiples":         `{"type":"integer","allOf":[` + list(1500, `{"multipleOf":7%de-99}`) + `{"minimum":13e-400}]}`,
		"doubling objects":       chain(40, `{"type":"string"}`, `{"type":"object","properties":{"l":NEXT,"r":NEXT},"required":["l","r"]}`),
		"doubling arrays":        chain(40, `{"type":"string"}`, `{"type":"array","items":NEXT,"minItems":2}`),
		"doubling allOf":         chain(40, `{"type":"string"}`, `{"allOf":[NEXT,NEXT]}`),
		"doubling anyOf":         chain(40, `{"type":"string"}`, `{"anyOf":[{"allOf":[NEXT,{"type":"null"}]},NEXT]}`),
		"doubling oneOf":         chain(40, `{"type":"string"}`, `{"oneOf":[NEXT,{"allOf":[NEXT,{"type":"null"}]}]}`),
		"doubling not":           `{"type":"string","not":` + chain(40, `{"type":"null"}`, `{"anyOf":[NEXT,NEXT]}`) + `}`,
		"doubling if":            chain(40, `{"type":"string"}`, `{"if":NEXT,"then":NEXT,"else":NEXT}`),
		"doubling names":         chain(40, `{"type":"string"}`, `{"required":["a"],"propertyNames":{"allOf":[NEXT,NEXT]}}`),
		"doubling properties":    chain(40, `{"type":"null"}`, `{"type":"object","properties":{"a":NEXT},"patternProperties":{"":NEXT,"a":NEXT},"required":["a"]}`),
		"choices, no value":      `{"allOf":[` + list(40, `{"anyOf":[{"minimum":1},{"minimum":2},{"minimum":%d}]}`) + `{"type":"integer","maximum":0}]}`,
		"nested, no value":       chain(60, `{"type":"string","pattern":"\\bx\\b","maxLength":0}`, `{"type":"object","properties":{"a":NEXT},"required":["a"]}`),
		"nested arrays":          chain(60, `{"type":"boolean"}`, `{"type":"array","items":NEXT,"minItems":2,"uniqueItems":true}`),
		"many anyOf":             `{"type":"object","allOf":[` + list(600, `{"anyOf":[{"title":"a"},{"title":"%d"}]}`) + `true]}`,
		"long chain of $ref":     chain(1500, `{"type":"integer"}`, `NEXT`),
		"long chain of objects":  chain(2000, `{"type":"integer"}`, `{"type":"object","properties":{"a":NEXT},"required":["a"]}`),
		"wide recursion":         `{"type":"object","properties":{` + list(200, `"p%d":{"$ref":"#"}`) + `"last":{"type":"string"}}}`,
		"recursion without end":  `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object","required":["b","c"],"properties":{"b":{"$ref":"#/$defs/a"},"c":{"$ref":"#/$defs/a"}}}}}`,
		"mutual recursion":       `{"$ref":"#/$defs/n0","$defs":{` + list(12, `"n%d":{"type":"object","required":["x","y"],"properties":{"x":{"$ref":"#/$defs/choice"},"y":{"$ref":"#/$defs/choice"}}}`) + `"choice":{"anyOf":[` + list(12, `{"$ref":"#/$defs/n%d"}`) + `{"type":"null"}]}}}`,
		"pattern, large":         `{"type":"string","pattern":"^(((a{1,100}){1,100}){1,100})$"}`,
		"pattern, many repeats":  `{"type":"array","minItems":100,"items":{"type":"string","pattern":"^((a{1,30}){1,30}b?){1}$"}}`,
		"many patterns":          `{"allOf":[` + list(2000, `{"pattern":"^(.{1,1000}){0,1}%d$"}`) + `{"type":"string"}]}`,
		"pattern of long string": `{"type":"string","minLength":500000,"pattern":"(x+x+)+y"}`,
	}
}

func TestMake_HostileSchemas_NoRace(t *testing.T) {
	for name, schema := range hostile() {
		t.Run(name, func(t *testing.T) {
			got, err := instance.Make([]byte(schema), strings.Repeat("text ", 1000), false)
			assert.Less(t, len(got), 16<<20)
			if err == nil {
				assert.True(t, json.Valid(got))
			}
		})
	}
}

// Each string takes the whole text until half of the steps are used.
func TestMake_ManyStrings(t *testing.T) {
	got, err := instance.Make([]byte(`{"type":"array","minItems":2000,"items":{"type":"string"}}`), strings.Repeat("text ", 1000), false)
	require.NoError(t, err)
	var list []string
	require.NoError(t, json.Unmarshal(got, &list))
	assert.Len(t, list, 2000)
	assert.Len(t, list[0], 4096)
	assert.Len(t, list[1999], 64)
}

func TestMake_Text(t *testing.T) {
	const schema = `{"type":"object","properties":{"name":{"type":"string"}}}`
	got, err := instance.Make([]byte(schema), "", false)
	require.NoError(t, err)
	assert.Equal(t, `{"name":"name"}`, string(got), "without a text, a string is the name of its property")

	got, err = instance.Make([]byte(schema), strings.Repeat("é", 5000), false)
	require.NoError(t, err)
	var v struct{ Name string }
	require.NoError(t, json.Unmarshal(got, &v))
	assert.Equal(t, 4096, utf8.RuneCountInString(v.Name), "a long text is cut")

	got, err = instance.Make([]byte(`{"type":"string","maxLength":8}`), "family 👨‍👩‍👧‍👦", false)
	require.NoError(t, err)
	assert.Equal(t, `"family "`, string(got), "a grapheme cluster is not cut")
}

func TestMake_Formats(t *testing.T) {
	parsesAs := func(layout string) func(string) bool {
		return func(s string) bool { _, err := time.Parse(layout, s); return err == nil }
	}
	matches := func(pattern string) func(string) bool { return regexp.MustCompile(pattern).MatchString }
	isURL := func(s string) bool { u, err := url.Parse(s); return err == nil && u.IsAbs() }
	for format, isValid := range map[string]func(string) bool{
		"date":                  parsesAs(time.DateOnly),
		"date-time":             parsesAs(time.RFC3339),
		"time":                  parsesAs("15:04:05Z07:00"),
		"duration":              matches(`^P\d+D$`),
		"email":                 func(s string) bool { a, err := mail.ParseAddress(s); return err == nil && a.Address == s },
		"hostname":              matches(`^[a-z0-9]+(\.[a-z0-9]+)*$`),
		"ipv4":                  func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
		"ipv6":                  func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() },
		"uri":                   isURL,
		"iri":                   isURL,
		"uri-reference":         isURL,
		"iri-reference":         isURL,
		"uri-template":          isURL,
		"uuid":                  matches(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`),
		"json-pointer":          matches(`^/\d+$`),
		"relative-json-pointer": matches(`^\d+$`),
		"regex":                 func(s string) bool { _, err := regexp.Compile(s); return err == nil },
	} {
		t.Run(format, func(t *testing.T) {
			schema := `{"type":"array","items":{"type":"string","format":"` + format + `"},"minItems":28,"uniqueItems":true}`
			got, err := instance.Make([]byte(schema), "x", false)
			require.NoError(t, err)
			var list []string
			require.NoError(t, json.Unmarshal(got, &list))
			require.Len(t, list, 28)
			for _, s := range list {
				assert.True(t, isValid(s), s)
				assert.NotEqual(t, "x", s)
			}
			requireValid(t, schema, string(got))
		})
	}
}

func FuzzMake(f *testing.F) {
	for _, schema := range hostile() {
		if len(schema) < 1<<9 {
			f.Add([]byte(schema), "text")
		}
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"],"enum":["x",null]}},"required":["a"]}`,
		`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`,
		`{"type":"array","items":[{"$ref":"#"}],"uniqueItems":true,"minItems":2}`,
		`{"type":"string","pattern":"^(\\p{L}+\\s?)*[^a-z]$","minLength":3,"maxLength":9}`,
		`{"if":{"$ref":"#"},"then":false,"else":{"$dynamicRef":"#"}}`,
		`{"type":"number","multipleOf":0.01,"exclusiveMinimum":1e-300}`,
		`{"dependentRequired":{"a":["b"]},"minProperties":3,"unevaluatedProperties":{"type":"null"}}`,
	} {
		f.Add([]byte(schema), "")
	}
	f.Fuzz(func(t *testing.T, schema []byte, text string) {
		if !utf8.ValidString(text) {
			t.Skip()
		}
		if v, err := instance.Make(schema, text, false); err == nil {
			require.True(t, json.Valid(v), "%s", v)
		}
		if v, err := instance.Make(schema, text, true); err == nil {
			require.True(t, json.Valid(v) && v[0] == '{', "%s", v)
		}
	})
}
