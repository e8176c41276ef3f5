// The steps of replies in a file.

package llmfake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// A scriptReply is a step or a list of steps.
type scriptReply struct{ Reply }

func (r *scriptReply) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("[")) {
		return r.addStep(b)
	}
	var steps list[json.RawMessage]
	if err := decodeStrict(b, &steps); err != nil {
		return err
	}
	if len(steps) == 0 {
		return errors.New("the list of steps is empty")
	}
	for i, step := range steps {
		if err := r.addStep(step); err != nil {
			return at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

// addStep adds the step in b to r.
func (r *scriptReply) addStep(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || len(members) != 1 {
		return fmt.Errorf("a step of a reply is an object with one member: %s", quote(string(b)))
	}
	for name, value := range members {
		add := scriptSteps[name]
		if add == nil {
			return fmt.Errorf("there is no step %q", name)
		}
		longer, err := add(r.Reply, value)
		if err != nil {
			return at(name, err)
		}
		r.Reply = longer
	}
	return nil
}

// scriptSteps has the steps of replies by their names.
var scriptSteps map[string]func(r Reply, value []byte) (Reply, error)

func init() { // because choices refer to the steps
	scriptSteps = map[string]func(r Reply, value []byte) (Reply, error){
		"text":   stepOf(func(r Reply, s string) Reply { return r.Text(s) }),
		"reason": stepOf(func(r Reply, s string) Reply { return r.Reason(s) }),
		"refuse": stepOf(func(r Reply, s string) Reply { return r.Refuse(s) }),
		"words": stepOf(func(r Reply, w struct {
			Text  string   `json:"text"`
			Delay duration `json:"delay"`
		}) Reply {
			return r.Words(w.Text, time.Duration(w.Delay))
		}),
		"json": stepOf(func(r Reply, v json.RawMessage) Reply { return r.JSON(v) }),
		"call": addCall,
		"cite": stepOf(func(r Reply, c struct {
			URL   string `json:"url"`
			Title string `json:"title"`
			Start int    `json:"start"`
			End   int    `json:"end"`
		}) Reply {
			return r.Cite(c.URL, c.Title, c.Start, c.End)
		}),
		"choices": stepOf(func(r Reply, choices list[scriptReply]) Reply { return r.Then(Choices(replies(choices)...)) }),
		"scores":  stepOf(func(r Reply, v []float64) Reply { return r.Then(Scores(v...)) }),
		"audio":   stepOf(func(r Reply, v [][]byte) Reply { return r.Then(Audio(v...)) }),
		"vectors": stepOf(func(r Reply, v [][]float32) Reply { return r.Then(Vectors(v...)) }),
		"usage": stepOf(func(r Reply, u struct {
			Prompt     int `json:"prompt"`
			Completion int `json:"completion"`
		}) Reply {
			return r.Usage(u.Prompt, u.Completion)
		}),
		"finish": stepOf(func(r Reply, reason llm.FinishReason) Reply { return r.Finish(reason) }),
		"wait":   stepOf(func(r Reply, d duration) Reply { return r.Wait(time.Duration(d)) }),
		"fail":   addFail,
		"break": stepOf(func(r Reply, message string) Reply {
			return r.Break(llm.Errorf(http.StatusInternalServerError, "", "%s", message))
		}),
		"html":             addHTML,
		"raw":              addRaw,
		"simulate":         flagStep(func(r Reply) Reply { return r.Then(Simulate()) }),
		"cut":              flagStep(Reply.Cut),
		"no_end":           flagStep(Reply.NoEnd),
		"malformed":        flagStep(Reply.Malformed),
		"hang":             flagStep(Reply.Hang),
		"bad_tool_indices": flagStep(Reply.BadToolIndices),
	}
}

// stepOf returns a function that decodes a value strictly and adds a step.
func stepOf[T any](add func(r Reply, v T) Reply) func(Reply, []byte) (Reply, error) {
	return func(r Reply, value []byte) (Reply, error) {
		var v T
		if err := decodeStrict(value, &v); err != nil {
			return r, err
		}
		return add(r, v), nil
	}
}

// flagStep returns a function that adds a step whose value must be true.
func flagStep(add func(r Reply) Reply) func(Reply, []byte) (Reply, error) {
	return func(r Reply, value []byte) (Reply, error) {
		if string(value) != "true" {
			return r, fmt.Errorf("the value must be true, and not %s", value)
		}
		return add(r), nil
	}
}

// addCall adds a call of a tool.
func addCall(r Reply, value []byte) (Reply, error) {
	var call struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}
	err := decodeStrict(value, &call)
	var text string
	switch {
	case err != nil:
		return r, err
	case call.Tool == "":
		return r, errors.New("there is no member tool with a name")
	case call.Arguments == nil:
		return r.Call(call.Tool, nil), nil
	case json.Unmarshal(call.Arguments, &text) == nil:
		return r.Call(call.Tool, text), nil
	}
	return r.Call(call.Tool, call.Arguments), nil
}

// addFail adds an error.
func addFail(r Reply, value []byte) (Reply, error) {
	var status int
	if json.Unmarshal(value, &status) == nil {
		if err := checkStatus(status, 400, 599); err != nil {
			return r, err
		}
		return r.Then(Fail(status)), nil
	}
	var f struct {
		Status     int      `json:"status"`
		Code       string   `json:"code"`
		Message    string   `json:"message"`
		RetryAfter duration `json:"retry_after"`
	}
	if err := decodeStrict(value, &f); err != nil {
		return r, err
	}
	if err := checkStatus(f.Status, 400, 599); err != nil {
		return r, at("status", err)
	}
	e := errorFor(f.Status)
	e.Code, e.Message = cmp.Or(f.Code, e.Code), cmp.Or(f.Message, e.Message)
	e.RetryAfter = time.Duration(f.RetryAfter)
	return r.Then(FailWith(e)), nil
}

// addHTML adds a page of a proxy.
func addHTML(r Reply, value []byte) (Reply, error) {
	var status int
	err := decodeStrict(value, &status)
	if err == nil {
		err = checkStatus(status, 200, 599)
	}
	if err != nil {
		return r, err
	}
	return r.Then(HTML(status)), nil
}

// addRaw adds an HTTP response.
func addRaw(r Reply, value []byte) (Reply, error) {
	var raw struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	if err := decodeStrict(value, &raw); err != nil {
		return r, err
	}
	if err := checkStatus(raw.Status, 200, 599); err != nil {
		return r, at("status", err)
	}
	h := http.Header{}
	for name, text := range raw.Headers {
		h.Set(name, text)
	}
	return r.Then(Raw(raw.Status, h, []byte(raw.Body))), nil
}
