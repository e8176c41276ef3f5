// Replies and rules in files.

package llmfake

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llmhttp/llmhttp"
)

// A Script has replies and rules from a file in JSON or YAML, for the command llmfake and for
// [Server.Load].
//
//	replies:                 # for any request, in order, each once
//	  - text: Hello!
//	rules:
//	  - when: {user: weather, turn: 1}
//	    replies:
//	      - [{text: I will look.}, {call: {tool: forecast, arguments: {city: Bergen}}}]
//	  - when: {tool_result: {tool: forecast}}
//	    always: {text: Take an umbrella.}
//	  - when: {model: "*-flaky"}
//	    replies: [{fail: {status: 429, retry_after: 2s}}]
//	    always: {simulate: true}
//	always: {simulate: true} # for all other requests
//
// A reply is one step or a list of steps. A step is an object with one of these members:
//
//   - text, words ({text, delay}), reason, refuse: a text
//   - json: any value, which the reply has as its text
//   - call: {tool, arguments}; arguments that are a string are taken as they are
//   - cite: {url, title, start, end}
//   - choices: a list of replies
//   - vectors: a list of lists of numbers, for embeddings
//   - scores: a list of numbers, for the documents of a request to rerank
//   - audio: a list of pieces in base64, for speech
//   - simulate: true
//   - usage: {prompt, completion}, and finish: a reason
//   - wait: a duration such as 300ms
//   - fail: a status, or {status, code, message, retry_after}
//   - break: a message
//   - cut, no_end, malformed, hang, bad_tool_indices: true
//   - html: a status
//   - raw: {status, headers, body}
//
// The members of when are model, protocol, user, user_matches, system, tool_result ({tool,
// text}), offers_tool, turn, stream, headers and operation (such as chat or embeddings). A
// request must have all of them. They mean what the Matchers of this package mean. An operation
// that may be a typing error for another, such as chats, is an error.
//
// Further members of a Script are key, models, limits ({requests_per_minute, tokens_per_minute,
// concurrent}), chaos and pace, with the names of the fields of [Chaos] and [Pace] in lower case
// with underscores.
//
// Members with other names are errors. Without replies, rules and always, the simulated model
// replies.
type Script struct {
	file scriptFile
	name string
}

// ReadScript reads a file. Its format is JSON if its name ends in .json, and otherwise YAML.
func ReadScript(file string) (*Script, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	script, err := ParseScript(b, strings.EqualFold(filepath.Ext(file), ".json"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	script.name = filepath.Base(file)
	return script, nil
}

// ParseScript reads a Script in JSON or in YAML.
func ParseScript(text []byte, isJSON bool) (*Script, error) {
	if !isJSON {
		var v map[string]any
		if err := yaml.Unmarshal(text, &v); err != nil {
			return nil, err
		}
		if v == nil {
			v = map[string]any{}
		}
		b, err := json.Marshal(v)
		if err != nil { // a key that is not a string, or a number such as .nan
			return nil, fmt.Errorf("the YAML has no form in JSON: %w", err)
		}
		text = b
	}
	script := &Script{name: "the script"}
	if err := decodeStrict(text, &script.file); err != nil {
		return nil, err
	}
	return script, nil
}

// Load reads a file as [ReadScript] does, and adds its replies and rules to those of the test. It
// ends the test if it cannot.
func (s *Server) Load(file string) {
	s.t.Helper()
	script, err := ReadScript(file)
	if err != nil {
		s.t.Fatalf("llmfake: %v", err)
		return
	}
	s.Use(script)
}

// Use adds the replies and rules of a script to those of the test. What else the script sets,
// such as chaos, replaces what was set before.
func (s *Server) Use(script *Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked(script)
}

// Reset makes the Server as it was when it was created: it forgets requests, replies, rules,
// limits, chaos and failures. Replies that are left do not fail the test. Then it uses script,
// unless that is nil; no request gets a reply between the two. It is for a Server that several
// tests use one after the other.
func (s *Server) Reset(script *Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.queue, s.scripted, s.journal, s.problems = nil, Rule{}, false, nil, nil
	s.key, s.limits, s.models, s.chaos, s.pace, s.calls = "", llmhttp.Limits{}, nil, nil, nil, 0
	s.signalLocked()
	if script != nil {
		s.useLocked(script)
	}
}

func (s *Server) useLocked(script *Script) {
	f := &script.file
	for i := range f.Rules {
		rule := &f.Rules[i]
		r := &Rule{server: s, matchers: rule.When.matchers(), place: fmt.Sprintf("%s, rules[%d]", script.name, i)}
		s.rules = append(s.rules, r)
		s.addLocked(r, replies(rule.Replies), r.place)
		if rule.Always != nil {
			r.always = &rule.Always.Reply
		}
	}
	if len(f.Replies) > 0 {
		s.addLocked(&s.queue, replies(f.Replies), script.name)
	}
	if f.Always != nil {
		s.scripted, s.queue.always = true, &f.Always.Reply
	}
	if f.Key != "" {
		s.key = f.Key
	}
	if f.Limits != nil {
		s.limits = f.Limits.limits()
	}
	if f.Chaos != nil {
		s.chaos = newChaosState(f.Chaos.chaos())
	}
	if f.Pace != nil {
		s.pace = newPaceState(f.Pace.pace())
	}
	s.addModelsLocked(f.Models)
}

type scriptFile struct {
	Replies list[scriptReply]
	Rules   list[scriptRule]
	Always  *scriptReply
	Key     string
	Models  []string
	Limits  *scriptLimits
	Chaos   *scriptChaos
	Pace    *scriptPace
}

func (f *scriptFile) UnmarshalJSON(b []byte) error {
	err := decodeMembers(b, map[string]any{
		"replies": &f.Replies, "rules": &f.Rules, "always": &f.Always, "key": &f.Key, "models": &f.Models,
		"limits": &f.Limits, "chaos": &f.Chaos, "pace": &f.Pace,
	})
	if err == nil && f.Limits != nil {
		err = at("limits", f.Limits.check())
	}
	if err == nil && f.Chaos != nil {
		err = at("chaos", inScript(new(f.Chaos.chaos()).check()))
	}
	if err == nil && f.Pace != nil {
		err = at("pace", inScript(new(f.Pace.pace()).check()))
	}
	return err
}

func replies(list []scriptReply) []Reply {
	var result []Reply
	for _, r := range list {
		result = append(result, r.Reply)
	}
	return result
}
