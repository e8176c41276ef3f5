package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp/llmhttptest"
)

type object = map[string]any

// An accumulator reads a stream and returns an error for anything that some client
// refuses; docs/wire-format.md lists what clients refuse.
type accumulator struct {
	response object // of the last event with a response
	items    []object
	done     map[int]bool
	parts    map[int]string // the type of the open part of an item; "" if none is open
	ids      map[string]bool
	sequence int
	failure  object // the event error
	ended    bool
}

// accumulate returns the final response of a stream.
func accumulate(events []llmhttptest.Event) (object, error) {
	a := &accumulator{done: make(map[int]bool), parts: make(map[int]string), ids: make(map[string]bool)}
	for i, e := range events {
		if err := a.add(e); err != nil {
			return nil, fmt.Errorf("event %d, %s: %w", i, e.Data, err)
		}
	}
	if !a.ended {
		return nil, errors.New("the stream has no end")
	}
	return a.response, nil
}

func (a *accumulator) add(e llmhttptest.Event) error {
	var data object
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
		return err
	}
	typ, _ := data["type"].(string)
	_, hasError := data["error"]
	switch {
	case a.ended:
		return errors.New("an event after the end")
	case typ == "" || typ != e.Name:
		return fmt.Errorf("the name of the event is %q", e.Name)
	case hasError && typ != "error":
		return errors.New("a member error at the top")
	case data["sequence_number"] != float64(a.sequence):
		return fmt.Errorf("the sequence number is not %d", a.sequence)
	case a.sequence == 0 && typ != "response.created":
		return errors.New("the first event is not response.created")
	}
	a.sequence++
	if r, ok := data["response"].(object); ok {
		return a.lifecycle(typ, r)
	}
	if typ == "error" {
		a.failure = data
		return nil
	}
	return a.itemEvent(typ, data)
}

func (a *accumulator) lifecycle(typ string, r object) error {
	status := strings.TrimPrefix(typ, "response.")
	if status == "created" {
		status = "in_progress"
	}
	if err := checkResponse(r); err != nil {
		return err
	}
	if r["status"] != status {
		return fmt.Errorf("the status is %v", r["status"])
	}
	if a.response != nil && (r["id"] != a.response["id"] || r["created_at"] != a.response["created_at"] || r["model"] != a.response["model"]) {
		return errors.New("the identity of the response has changed")
	}
	a.response = r
	if status == "in_progress" {
		return nil
	}
	a.ended = true
	e, _ := r["error"].(object)
	if status == "failed" && !equalJSON(e, object{"code": a.failure["code"], "message": a.failure["message"]}) {
		return fmt.Errorf("the event error before it is %v", a.failure)
	}
	output := r["output"].([]any)
	if len(output) != len(a.items) {
		return fmt.Errorf("%d items are in the output, and %d were added", len(output), len(a.items))
	}
	for i, it := range output {
		if !a.done[i] && status != "failed" {
			return fmt.Errorf("item %d is not done", i)
		}
		if a.done[i] && !equalJSON(it, a.items[i]) {
			return fmt.Errorf("item %d differs from what was done", i)
		}
	}
	return nil
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// requiredMembers has the members of a response that clients or the specification of
// Open Responses require, and the types that their values may have.
var requiredMembers = map[string]string{
	"id": "string", "object": "string", "created_at": "number", "completed_at": "number null", "status": "string",
	"incomplete_details": "object null", "model": "string", "previous_response_id": "string null", "instructions": "string null",
	"output": "array", "error": "object null", "tools": "array", "tool_choice": "string object", "truncation": "string",
	"parallel_tool_calls": "boolean", "text": "object", "top_p": "number", "presence_penalty": "number", "frequency_penalty": "number",
	"top_logprobs": "number", "temperature": "number", "reasoning": "object", "usage": "object null", "max_output_tokens": "number null",
	"max_tool_calls": "number null", "store": "boolean", "background": "boolean", "service_tier": "string", "metadata": "object",
	"safety_identifier": "string null", "prompt_cache_key": "string null", "user": "string null",
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	}
	return "object"
}

func checkResponse(r object) error {
	for name, types := range requiredMembers {
		v, ok := r[name]
		if !ok || !strings.Contains(types, typeName(v)) {
			return fmt.Errorf("the member %s is missing or %s", name, typeName(v))
		}
	}
	status := r["status"]
	if usage, ok := r["usage"].(object); ok {
		for _, path := range []string{
			"input_tokens", "output_tokens", "total_tokens", "input_tokens_details.cached_tokens", "output_tokens_details.reasoning_tokens",
		} {
			outer, inner, nested := strings.Cut(path, ".")
			v := usage[outer]
			if nested {
				v = v.(object)[inner]
			}
			if n, ok := v.(float64); !ok || n != float64(int(n)) {
				return fmt.Errorf("usage.%s is not an integer", path)
			}
		}
	} else if status == "completed" || status == "incomplete" {
		return errors.New("the usage is missing")
	}
	for i, it := range r["output"].([]any) {
		if err := checkItem(it.(object)); err != nil {
			return fmt.Errorf("output[%d]: %w", i, err)
		}
	}
	return nil
}

func requireStrings(o object, names ...string) error {
	for _, name := range names {
		if _, ok := o[name].(string); !ok {
			return fmt.Errorf("%s is not a string", name)
		}
	}
	return nil
}

func checkItem(it object) error {
	if err := requireStrings(it, "id", "type"); err != nil {
		return err
	}
	prefix := map[any]string{"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_",
		"compaction": "cmp_"}[it["type"]]
	if prefix == "" || !strings.HasPrefix(it["id"].(string), prefix) {
		return fmt.Errorf("the ID of a %v is %v", it["type"], it["id"])
	}
	switch it["type"] {
	case "compaction":
		if _, ok := it["status"]; ok || len(it) != 3 {
			return fmt.Errorf("the item has members that the API does not: %v", it)
		}
		return requireStrings(it, "encrypted_content")
	case "reasoning":
		_, ok := it["summary"].([]any)
		if !ok {
			return errors.New("a reasoning item without a summary")
		}
		return nil
	case "function_call":
		if it["call_id"] == "" {
			return errors.New("a call without an ID")
		}
		return requireStrings(it, "call_id", "name", "arguments", "status")
	case "custom_tool_call":
		return requireStrings(it, "call_id", "name", "input", "status")
	}
	if it["role"] != "assistant" {
		return errors.New("the role is not assistant")
	}
	for _, p := range it["content"].([]any) {
		if err := checkContentPart(p.(object)); err != nil {
			return err
		}
	}
	return requireStrings(it, "status")
}

func checkContentPart(p object) error {
	if p["type"] == "refusal" {
		return requireStrings(p, "refusal")
	}
	_, annotations := p["annotations"].([]any)
	_, logprobs := p["logprobs"].([]any)
	if p["type"] != "output_text" || !annotations || !logprobs {
		return fmt.Errorf("a part %v", p)
	}
	return requireStrings(p, "text")
}

func (a *accumulator) itemEvent(typ string, data object) error {
	i, ok := data["output_index"].(float64)
	if !ok {
		return errors.New("no output_index")
	}
	index := int(i)
	if typ == "response.output_item.added" {
		return a.addItem(index, data["item"].(object))
	}
	if index >= len(a.items) || a.done[index] {
		return errors.New("the item is not open")
	}
	it := a.items[index]
	if typ == "response.output_item.done" {
		return a.finishItem(index, data["item"].(object))
	}
	if data["item_id"] != it["id"] {
		return errors.New("the item_id is that of another item")
	}
	kind, ok := strings.CutPrefix(typ, "response.")
	if !ok {
		return errors.New("unknown type")
	}
	switch kind {
	case "content_part.added", "reasoning_summary_part.added":
		return a.addPart(index, data)
	case "content_part.done", "reasoning_summary_part.done":
		return a.finishPart(index, data)
	case "output_text.delta", "refusal.delta", "reasoning_summary_text.delta":
		return a.addText(index, strings.TrimSuffix(kind, ".delta"), data)
	case "output_text.annotation.added":
		return a.addAnnotation(index, data)
	case "output_text.done", "refusal.done", "reasoning_summary_text.done":
		name := partMember(kind)
		if p := lastPart(it, partList(it)); data[name] != p[name] {
			return errors.New("the text differs from its deltas")
		}
		return a.checkPart(index, strings.TrimSuffix(kind, ".done"))
	case "function_call_arguments.delta":
		it["arguments"] = it["arguments"].(string) + data["delta"].(string)
		return nil
	case "custom_tool_call_input.delta":
		it["input"] = it["input"].(string) + data["delta"].(string)
		return nil
	case "function_call_arguments.done":
		return requireEqual(data, it, "arguments", "name")
	case "custom_tool_call_input.done":
		return requireEqual(data, it, "input")
	}
	return errors.New("unknown type")
}

// addAnnotation adds an annotation to the open part of an item.
func (a *accumulator) addAnnotation(index int, data object) error {
	if err := a.checkPart(index, "output_text"); err != nil {
		return err
	}
	p := lastPart(a.items[index], partList(a.items[index]))
	list := p["annotations"].([]any)
	if data["annotation_index"] != float64(len(list)) || data["content_index"] != float64(len(a.items[index]["content"].([]any))-1) {
		return fmt.Errorf("the annotation %v is not the next", data)
	}
	annotation, _ := data["annotation"].(object)
	if annotation["type"] != "url_citation" {
		return fmt.Errorf("the annotation is %v", annotation)
	}
	p["annotations"] = append(list, annotation)
	return requireStrings(annotation, "url", "title")
}

// requireEqual compares members of an event with those that its item has by the deltas.
func requireEqual(data, it object, names ...string) error {
	for _, name := range names {
		if data[name] != it[name] {
			return fmt.Errorf("%s is %v, and %v in the item", name, data[name], it[name])
		}
	}
	return nil
}

func (a *accumulator) finishPart(index int, data object) error {
	open := a.parts[index]
	a.parts[index] = ""
	p := lastPart(a.items[index], partList(a.items[index]))
	if open == "" || !equalJSON(p, data["part"]) {
		return fmt.Errorf("the part differs from its deltas: %v", p)
	}
	return nil
}

func (a *accumulator) addItem(index int, it object) error {
	if index != len(a.items) {
		return errors.New("the index is not the next")
	}
	if err := checkItem(it); err != nil {
		return err
	}
	for _, name := range []string{"id", "call_id"} {
		if id, ok := it[name].(string); ok {
			if a.ids[id] {
				return errors.New("an ID is used twice")
			}
			a.ids[id] = true
		}
	}
	if it["type"] != "reasoning" && it["type"] != "compaction" && it["status"] != "in_progress" {
		return errors.New("a new item is not in progress")
	}
	list := partList(it)
	hasText := func(name string) bool { return it[name] != nil && it[name] != "" }
	if list != "" && len(it[list].([]any)) > 0 || hasText("arguments") || hasText("input") {
		return errors.New("a new item is not empty")
	}
	a.items = append(a.items, it)
	return nil
}

func (a *accumulator) finishItem(index int, it object) error {
	old := a.items[index]
	if a.parts[index] != "" {
		return errors.New("a part is open")
	}
	for name, v := range old {
		if name != "status" && !equalJSON(v, it[name]) {
			return fmt.Errorf("the member %s differs from its deltas: %v", name, v)
		}
	}
	if it["status"] == "in_progress" {
		return errors.New("a finished item is in progress")
	}
	a.items[index], a.done[index] = it, true
	return checkItem(it)
}

// partList returns the name of the member with the parts of an item.
func partList(it object) string {
	switch it["type"] {
	case "message":
		return "content"
	case "reasoning":
		return "summary"
	}
	return ""
}

func lastPart(it object, list string) object {
	parts := it[list].([]any)
	return parts[len(parts)-1].(object)
}

// partMember returns the name of the member with the text of a part or an event.
func partMember(kind string) string {
	if strings.HasPrefix(kind, "refusal") {
		return "refusal"
	}
	return "text"
}

func (a *accumulator) addPart(index int, data object) error {
	it := a.items[index]
	list := partList(it)
	member := map[string]string{"content": "content_index", "summary": "summary_index"}[list]
	if list == "" || a.parts[index] != "" || data[member] != float64(len(it[list].([]any))) {
		return errors.New("the part cannot be added")
	}
	p := data["part"].(object)
	typ := p["type"].(string)
	if p[partMember(typ)] != "" {
		return errors.New("a new part is not empty")
	}
	a.parts[index] = typ
	it[list] = append(it[list].([]any), p)
	return nil
}

func (a *accumulator) checkPart(index int, kind string) error {
	if typ := a.parts[index]; typ == "" || strings.TrimPrefix(kind, "reasoning_") != typ {
		return fmt.Errorf("the open part is %q", typ)
	}
	return nil
}

func (a *accumulator) addText(index int, kind string, data object) error {
	if kind == "reasoning_summary_text" {
		kind = "summary_text"
	}
	if err := a.checkPart(index, kind); err != nil {
		return err
	}
	it := a.items[index]
	p := lastPart(it, partList(it))
	name := partMember(kind)
	p[name] = p[name].(string) + data["delta"].(string)
	if kind == "output_text" {
		p["logprobs"] = append(p["logprobs"].([]any), data["logprobs"].([]any)...)
	}
	return nil
}
