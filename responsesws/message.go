// The messages of clients, and the body of the request that a message becomes.

package responsesws

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// The types of messages that clients send.
const (
	typeCreate    = "response.create"
	typeProcessed = "response.processed"
)

// A message is a message of a client. Its fields refer to the bytes of the message.
type message struct {
	typ      string
	streamID string // empty for the stream without a name
	previous string // previous_response_id; empty if there is none
	warmup   bool   // "generate": false
	size     int

	input   []byte // the items, separated by commas; only if hasList is set
	hasList bool   // the input is a list or a text
	members []byte // the other members of the request, each with a comma before it
	params  map[string]json.RawMessage
}

// maxStreamID is how long a stream_id may be.
const maxStreamID = 256

// parseMessage reads a message. If there is an error, the message has the stream_id, if that is known.
func parseMessage(data []byte) (*message, *apiError) {
	m := &message{size: len(data), params: make(map[string]json.RawMessage)}
	members, err := splitObject(data)
	if err != nil {
		return m, badRequest("invalid_json", "", "A message must be a JSON object: %v.", err)
	}
	known := make(map[string]json.RawMessage, len(members))
	for _, member := range members {
		switch member.name {
		case "type", "stream_id", "generate", "stream", "input", "previous_response_id":
			if _, ok := known[member.name]; ok {
				return m, badRequest("duplicate_parameter", member.name, "Duplicate parameter: '%s'.", member.name)
			}
			known[member.name] = member.value
		default:
			m.params[member.name] = member.value
			m.addMember(member.name, member.value)
		}
	}
	if e := m.setRouting(known); e != nil {
		return m, e
	}
	return m, m.setRequest(known)
}

// setRouting sets the type and the stream.
func (m *message) setRouting(known map[string]json.RawMessage) *apiError {
	if id := known["stream_id"]; !isNull(id) {
		if json.Unmarshal(id, &m.streamID) != nil || !isStreamID(m.streamID) {
			m.streamID = ""
			return badRequest("invalid_stream_id", "stream_id", "The 'stream_id' field must be a non-empty string with at most %d "+
				"characters and may only contain letters, numbers, underscores, hyphens, and periods.", maxStreamID)
		}
	}
	if json.Unmarshal(known["type"], &m.typ) != nil || m.typ == "" {
		return badRequest("", "type", "The member 'type' must be the type of the message, such as '%s'.", typeCreate)
	}
	return nil
}

func isStreamID(s string) bool {
	if s == "" || len(s) > maxStreamID {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// setRequest sets what is not passed on as it is. The member stream has no meaning here.
func (m *message) setRequest(known map[string]json.RawMessage) *apiError {
	if generate := known["generate"]; !isNull(generate) {
		var yes bool
		if json.Unmarshal(generate, &yes) != nil {
			return badRequest("invalid_type", "generate", "Invalid type for 'generate': expected a boolean.")
		}
		m.warmup = !yes
	}
	if previous := known["previous_response_id"]; !isNull(previous) && json.Unmarshal(previous, &m.previous) != nil {
		m.addMember("previous_response_id", previous) // is refused
	}
	input := bytes.TrimSpace(known["input"])
	switch {
	case isNull(input):
	case input[0] == '[':
		m.input, m.hasList = listItems(input), true
	case input[0] == '"':
		m.input, m.hasList = slices.Concat([]byte(`{"type":"message","role":"user","content":`), input, []byte("}")), true
	default:
		m.addMember("input", input) // is refused
	}
	return nil
}

// addMember adds a member of the request.
func (m *message) addMember(name string, value []byte) {
	quoted, _ := json.Marshal(name) // a text
	m.members = append(append(append(append(m.members, ','), quoted...), ':'), value...)
}

func isNull(value []byte) bool { return len(value) == 0 || string(value) == "null" }

// body returns the body of the request, which continues a conversation, and the items of its input, which are
// a part of it.
func (m *message) body(before conversation) (body, items []byte) {
	b := make([]byte, 0, len(m.members)+len(before.items)+len(m.input)+len(before.base)+100)
	b = append(b, `{"stream":`...)
	b = strconv.AppendBool(b, !m.warmup)
	if before.base != "" {
		quoted, _ := json.Marshal(before.base) // a text
		b = append(append(b, `,"previous_response_id":`...), quoted...)
	}
	if m.hasList || len(before.items) > 0 {
		b = append(b, `,"input":[`...)
		start := len(b)
		b = appendItems(append(b, before.items...), start, m.input)
		items = b[start:]
		b = append(b, ']')
	}
	return append(append(b, m.members...), '}'), items
}

// appendItems appends items to those that begin in b at start.
func appendItems(b []byte, start int, items []byte) []byte {
	if len(b) > start && len(items) > 0 {
		b = append(b, ',')
	}
	return append(b, items...)
}

// joinItems returns a new list of the items of two.
func joinItems(first, second []byte) []byte {
	b := make([]byte, 0, len(first)+len(second)+1)
	return appendItems(append(b, first...), 0, second)
}

// withoutTrigger returns items without a compaction_trigger at their end, which has asked for the response. A
// request in which other items follow it is refused.
func withoutTrigger(items []byte) []byte {
	const trigger = "compaction_trigger"
	if !bytes.Contains(items, []byte(trigger)) {
		return items
	}
	var list []json.RawMessage
	if json.Unmarshal(slices.Concat([]byte("["), items, []byte("]")), &list) != nil {
		return items
	}
	last := list[len(list)-1]
	var item struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(last, &item) != nil || item.Type != trigger {
		return items
	}
	return bytes.TrimRight(items[:len(items)-len(last)], ", \t\r\n")
}

// listItems returns what is between the brackets of a JSON list.
func listItems(list []byte) []byte {
	list = bytes.TrimSpace(list)
	if len(list) < 2 || list[0] != '[' {
		return nil
	}
	return bytes.TrimSpace(list[1 : len(list)-1])
}

// A member is a member of a JSON object. Its value is a part of the object.
type member struct {
	name  string
	value json.RawMessage
	start int // of the value in the object
}

// maxMembers is how many members an object may have. Each costs much more memory than its text.
const maxMembers = 1000

var (
	errNotAnObject    = errors.New("it is none")
	errTooManyMembers = errors.New("it has too many members")
)

// splitObject returns the members of the JSON object that data is, which are at most maxMembers.
func splitObject(data []byte) ([]member, error) {
	if !json.Valid(data) {
		var v json.RawMessage
		return nil, json.Unmarshal(data, &v) // the error
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNotAnObject
	}
	var members []member
	for d.More() {
		if len(members) == maxMembers {
			return nil, errTooManyMembers
		}
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var n size
		if err := d.Decode(&n); err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		members = append(members, member{name.(string), data[end-int(n) : end], end - int(n)})
	}
	return members, nil
}

// A size is how long a JSON value is.
type size int

// UnmarshalJSON implements [json.Unmarshaler].
func (s *size) UnmarshalJSON(b []byte) error { *s = size(len(b)); return nil }
