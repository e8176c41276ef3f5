package responses_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const notJSON = "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)"

func TestCreate_Numbers(t *testing.T) {
	const (
		integer, number = "expected an integer, but got ", "expected a number, but got "
		low, high       = "integer below minimum value. Expected a value >= ", "integer above maximum value. Expected a value <= "
		lowFloat        = "decimal below minimum value. Expected a value >= "
		highFloat       = "decimal above maximum value. Expected a value <= "
		most            = "9007199254740991"
	)
	codes := map[string]string{
		integer: "invalid_type", number: "invalid_type", low: "integer_below_min_value", high: "integer_above_max_value",
		lowFloat: "decimal_below_min_value", highFloat: "decimal_above_max_value",
	}
	s := newServer(t, nil, chunkText)
	for _, test := range []struct{ member, value, want, bound string }{
		{"max_output_tokens", `1`, "", ""},
		{"max_output_tokens", `1.0`, "", ""},
		{"max_output_tokens", `1e2`, "", ""},
		{"max_output_tokens", `2147483648`, "", ""},
		{"max_output_tokens", most, "", ""},
		{"max_output_tokens", `9007199254740992`, high, most + ", but got 9007199254740992 instead."},
		{"max_output_tokens", `9223372036854775808`, high, most + ", but got 9223372036854775808 instead."},
		{"max_output_tokens", `1e400`, high, most + ", but got 1e400 instead."},
		{"max_output_tokens", `-9223372036854775809`, low, "-" + most + ", but got -9223372036854775809 instead."},
		{"max_output_tokens", `-0`, low, "1, but got 0 instead."},
		{"max_output_tokens", `1.5`, integer, "a decimal number instead."},
		{"max_output_tokens", `"1"`, integer, "a string instead."},
		{"max_output_tokens", `true`, integer, "a boolean instead."},
		{"max_output_tokens", `[1]`, integer, "an array instead."},
		{"top_logprobs", `20`, "", ""},
		{"top_logprobs", `2e1`, "", ""},
		{"top_logprobs", `21`, high, "20, but got 21 instead."},
		{"top_logprobs", `-1`, low, "0, but got -1 instead."},
		{"max_tool_calls", `0`, low, "1, but got 0 instead."},
		{"temperature", `1`, "", ""},
		{"temperature", `1e-400`, "", ""},
		{"temperature", `2e0`, "", ""},
		{"temperature", `1e300`, highFloat, "2, but got 1.00e+300 instead."},
		{"temperature", `1e400`, highFloat, "1.80e+308, but got 1e400 instead."},
		{"temperature", `-1e400`, lowFloat, "-1.80e+308, but got -1e400 instead."},
		{"temperature", `"1"`, number, "a string instead."},
		{"temperature", `{}`, number, "an object instead."},
	} {
		t.Run(test.member+" "+test.value, func(t *testing.T) {
			body := `{"model":"m","input":"Hi","` + test.member + `":` + test.value + `}`
			if test.want == "" {
				s.create(body)
				return
			}
			e := s.requireRefused(400, "POST", "/v1/responses", body)
			assert.Equal(t, codes[test.want], e.Code)
			assert.Equal(t, test.member, e.Param)
			assert.Contains(t, e.Message, "'"+test.member+"': "+test.want+test.bound)
		})
	}
}

// A member that is null is as if it were missing.
func TestCreate_Nulls(t *testing.T) {
	s := newServer(t, nil, chunkText)
	for _, body := range []string{
		`{"model":"m","input":"Hi","instructions":null,"stream":null,"include":null,"tools":null,"tool_choice":null,"text":null,"reasoning":null,"temperature":null,
			"top_logprobs":null,"max_output_tokens":null,"metadata":null,"user":null,"store":null,"previous_response_id":null,"background":null,
			"conversation":null,"prompt":null}`,
		`{"model":"m","input":"Hi","text":{"format":null,"verbosity":null},"reasoning":{"effort":null,"summary":null}}`,
		`{"model":"m","input":"Hi","tools":[{"type":"function","name":"f","description":null,"parameters":null,"strict":null}]}`,
		`{"model":"m","input":[{"type":null,"id":null,"role":"user","content":[{"type":"input_image","image_url":"u","detail":null,"file_id":null}]}]}`,
		`{"model":"m","input":[{"role":"user","content":"Hi"},{"type":"reasoning","summary":null,"content":null,"encrypted_content":null}]}`,
	} {
		s.create(body)
	}
	for _, test := range []struct{ body, param, message string }{
		{`null`, "", "Invalid type for the request body: expected an object, but got null instead."},
		{`{"model":null,"input":"Hi"}`, "model", "Missing required parameter: 'model'."},
		{`{"model":"m","input":null}`, "input", "Missing required parameter: 'input'."},
		{`{"model":"m","input":[null]}`, "input[0]", "Invalid type for 'input[0]': expected an object, but got null instead."},
		{`{"model":"m","input":[{"role":"user","content":null}]}`, "input[0].content", "Missing required parameter: 'input[0].content'."},
		{`{"model":"m","input":[{"role":"user","content":[null]}]}`, "input[0].content[0]", "Invalid type for 'input[0].content[0]': expected an object, but got null instead."},
		{`{"model":"m","input":"Hi","include":[null]}`, "include[0]", "Invalid type for 'include[0]': expected a string, but got null instead."},
		{`{"model":"m","input":"Hi","tools":[null]}`, "tools[0]", "Invalid type for 'tools[0]': expected an object, but got null instead."},
	} {
		t.Run(test.body, func(t *testing.T) {
			e := s.requireRefused(400, "POST", "/v1/responses", test.body)
			assert.Equal(t, test.param, e.Param)
			assert.Equal(t, test.message, e.Message)
		})
	}
}

// What is ambiguous or not Unicode is refused.
func TestCreate_Strict(t *testing.T) {
	s := newServer(t, nil, chunkText)
	s.create(`{"model":"m","input":"Hi","streams":"yes","MODELS_":1}`) // unknown members
	s.create(`{"model":"m","input":"Hi","x":"\ud83d\ude00"}` + " \n\t\r")
	for _, test := range []struct{ members, param, message string }{
		{`,"x":1,"x":2`, "x", "Duplicate parameter: 'x'."},
		{`,"x":[0,{"a":1,"a":2}]`, "x[1].a", "Duplicate parameter: 'x[1].a'."},
		{`,"metadata":{"a":1,"\u0061":2}`, "metadata.a", "Duplicate parameter: 'metadata.a'."},
		{`,"x":"` + "\xff" + `"`, "", notJSON},
		{`,"` + "\xff" + `":1`, "", notJSON},
		{`,"x":"\ud800"`, "", notJSON},
		{`,"x":01`, "", notJSON},
		{`,"x":"` + "\n" + `"`, "", notJSON},
		{`}{`, "", notJSON},
	} {
		t.Run(test.members, func(t *testing.T) {
			e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"Hi"`+test.members+`}`)
			assert.Equal(t, test.param, e.Param)
			assert.Equal(t, test.message, e.Message)
		})
	}
	assert.Equal(t, notJSON, s.requireRefused(400, "POST", "/v1/responses", ` `).Message)
}
