// Divides streams into events.

package llmhttptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// SplitEvents divides a stream of server-sent events, for ProtocolOptions.Split. Each event
// must have at most one name, then exactly one line of data, which is JSON or [DONE], and end
// with an empty line. Comments are allowed between lines.
func SplitEvents(stream []byte, _ bool) ([]Event, error) {
	return splitEvents(stream, true)
}

// SplitEventsWithoutComments is like SplitEvents, and refuses comments: some clients, such as
// those of Gemini's API, fail on them.
func SplitEventsWithoutComments(stream []byte, _ bool) ([]Event, error) {
	return splitEvents(stream, false)
}

func splitEvents(stream []byte, comments bool) (events []Event, err error) {
	var e Event
	hasData := false
	fault := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	for len(stream) > 0 {
		line, rest, ok := bytes.Cut(stream, []byte("\n"))
		if !ok {
			fault("the stream ends with %q and not with a line break", line)
		}
		stream = rest
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case len(line) == 0:
			if !hasData {
				fault("an event has no data; openai-python and openai-node fail then")
			}
			events = append(events, e)
			e, hasData = Event{}, false
		case name == "":
			if !comments {
				fault("there is a comment: %q", value)
			}
		case name == "event" && e.Name == "" && !hasData:
			e.Name = value
		case name == "data" && !hasData:
			e.Data, hasData = value, true
			if value != "[DONE]" && !json.Valid([]byte(value)) {
				fault("the data of an event is not valid JSON: %s", value)
			}
		default:
			fault("an event has the line %q, and may have only one name and then one line of data", line)
		}
	}
	if hasData {
		fault("the last event %q has no empty line after it", e.Data)
	}
	return events, err
}

// SplitJSONLines divides a stream of JSON values, for ProtocolOptions.Split. Each value is on
// a line of its own, which must not be empty.
func SplitJSONLines(stream []byte, _ bool) (events []Event, err error) {
	for len(stream) > 0 {
		line, rest, ok := bytes.Cut(stream, []byte("\n"))
		switch {
		case !ok:
			return events, fmt.Errorf("the last line has no line break: %q", line)
		case !json.Valid(line):
			return events, fmt.Errorf("a line is not one JSON value: %q", line)
		}
		events = append(events, Event{Data: string(line)})
		stream = rest
	}
	return events, nil
}

// SplitJSONArray divides a stream that is one JSON array into its elements, for
// ProtocolOptions.Split. The end of the array may be missing if the stream was cut.
func SplitJSONArray(stream []byte, cut bool) (events []Event, err error) {
	dec := json.NewDecoder(bytes.NewReader(stream))
	if start, err := dec.Token(); err != nil || start != json.Delim('[') {
		return nil, fmt.Errorf("the stream begins with %v and the error %v, want a bracket", start, err)
	}
	for dec.More() && len(bytes.TrimSpace(stream[dec.InputOffset():])) > 0 { // More is true at the end with Go 1.27
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return events, err
		}
		events = append(events, Event{Data: string(element)})
	}
	if cut {
		return events, nil
	}
	if _, err := dec.Token(); err != nil {
		return events, fmt.Errorf("the array has no end: %w", err)
	}
	if rest := bytes.TrimSpace(stream[dec.InputOffset():]); len(rest) > 0 {
		return events, fmt.Errorf("after the array comes %q", rest)
	}
	return events, nil
}
