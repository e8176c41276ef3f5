package llmfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
// text}), offers_tool, turn, stream, headers and operation (chat, embeddings or images). A
// request must have all of them. They mean what the Matchers of this package mean.
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
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			return nil, err
		}
		if v == nil {
			v = map[string]any{}
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		text = b
	}
	script := &Script{name: "the script"}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&script.file); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the object")
	}
	for i := range script.file.Rules {
		if err := script.file.Rules[i].check(); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
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
	f := &script.file
	for i := range f.Rules {
		rule := &f.Rules[i]
		r := &Rule{server: s, matchers: rule.When.matchers(), place: fmt.Sprintf("%s, rules[%d]", script.name, i)}
		s.mu.Lock()
		s.rules = append(s.rules, r)
		s.mu.Unlock()
		s.add(r, replies(rule.Replies), r.place)
		if rule.Always != nil {
			r.Always(rule.Always.Reply)
		}
	}
	if len(f.Replies) > 0 {
		s.add(&s.queue, replies(f.Replies), script.name)
	}
	if f.Always != nil {
		s.Always(f.Always.Reply)
	}
	if f.Key != "" {
		s.RequireKey(f.Key)
	}
	if f.Limits != nil {
		s.Limit(f.Limits.limits())
	}
	if f.Chaos != nil {
		s.Chaos(f.Chaos.chaos())
	}
	if f.Pace != nil {
		s.Pace(Pace{time.Duration(f.Pace.FirstToken), f.Pace.TokensPerSecond, f.Pace.Jitter})
	}
	s.AddModels(f.Models...)
}

// Reset makes the Server as it was when it was created: it forgets requests, replies, rules,
// limits, chaos and failures. Replies that are left do not fail the test. It is for a Server that
// several tests use one after the other.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.queue, s.scripted, s.journal, s.problems = nil, Rule{}, false, nil, nil
	s.key, s.limits, s.models, s.chaos, s.pace, s.calls = "", llmhttp.Limits{}, nil, nil, Pace{}, 0
	s.signalLocked()
}

type scriptFile struct {
	Replies []scriptReply `json:"replies"`
	Rules   []scriptRule  `json:"rules"`
	Always  *scriptReply  `json:"always"`
	Key     string        `json:"key"`
	Models  []string      `json:"models"`
	Limits  *scriptLimits `json:"limits"`
	Chaos   *scriptChaos  `json:"chaos"`
	Pace    *scriptPace   `json:"pace"`
}

func replies(list []scriptReply) []Reply {
	var result []Reply
	for _, r := range list {
		result = append(result, r.Reply)
	}
	return result
}

type scriptRule struct {
	When    scriptWhen    `json:"when"`
	Replies []scriptReply `json:"replies"`
	Always  *scriptReply  `json:"always"`
}

func (r *scriptRule) check() error {
	if len(r.Replies) == 0 && r.Always == nil {
		return errors.New("a rule needs replies or always")
	}
	return r.When.check()
}

type scriptWhen struct {
	Model       *string `json:"model"`
	Protocol    *string `json:"protocol"`
	User        *string `json:"user"`
	UserMatches *string `json:"user_matches"`
	System      *string `json:"system"`
	ToolResult  *struct {
		Tool string `json:"tool"`
		Text string `json:"text"`
	} `json:"tool_result"`
	OffersTool *string           `json:"offers_tool"`
	Turn       *int              `json:"turn"`
	Stream     *bool             `json:"stream"`
	Headers    map[string]string `json:"headers"`
	Operation  string            `json:"operation"`
}

func (w *scriptWhen) check() (err error) {
	switch w.Operation {
	case "", "chat", "embeddings", "images":
	default:
		return fmt.Errorf("when: the operation %q is none of chat, embeddings and images", w.Operation)
	}
	if w.Protocol != nil && *w.Protocol != ChatCompletions && *w.Protocol != Messages && *w.Protocol != Responses {
		return fmt.Errorf("when: the protocol %q is none of chat, messages and responses", *w.Protocol)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("when: user_matches: %v", p)
		}
	}()
	w.matchers()
	return nil
}

// matchers returns the Matchers that w stands for. It panics if a regular expression is
// malformed.
func (w *scriptWhen) matchers() []Matcher {
	var list []Matcher
	for _, m := range []struct {
		value *string
		make  func(string) Matcher
	}{
		{w.Model, Model}, {w.Protocol, Protocol}, {w.User, UserText}, {w.UserMatches, UserTextMatches}, {w.System, SystemText}, {w.OffersTool, OffersTool},
	} {
		if m.value != nil {
			list = append(list, m.make(*m.value))
		}
	}
	if w.ToolResult != nil {
		list = append(list, HasToolResult(w.ToolResult.Tool, w.ToolResult.Text))
	}
	if w.Turn != nil {
		list = append(list, Turn(*w.Turn))
	}
	if w.Stream != nil {
		list = append(list, Streamed(*w.Stream))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		list = append(list, HasHeader(name, w.Headers[name]))
	}
	switch w.Operation {
	case "embeddings":
		list = append(list, Embeddings())
	case "images":
		list = append(list, Images())
	}
	return list
}

// A scriptReply is a step or a list of steps.
type scriptReply struct{ Reply }

func (r *scriptReply) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("[")) {
		return r.addStep(b)
	}
	var steps []json.RawMessage
	if err := json.Unmarshal(b, &steps); err != nil {
		return err
	}
	for _, step := range steps {
		if err := r.addStep(step); err != nil {
			return err
		}
	}
	return nil
}

type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is a string such as \"300ms\", and not %s", b)
	}
	parsed, err := time.ParseDuration(s)
	*d = duration(parsed)
	return err
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
			return fmt.Errorf("%s: %w", name, err)
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
		"call": stepOf(func(r Reply, c struct {
			Tool      string          `json:"tool"`
			Arguments json.RawMessage `json:"arguments"`
		}) Reply {
			var text string
			switch {
			case c.Arguments == nil:
				return r.Call(c.Tool, nil)
			case json.Unmarshal(c.Arguments, &text) == nil:
				return r.Call(c.Tool, text)
			}
			return r.Call(c.Tool, c.Arguments)
		}),
		"cite": stepOf(func(r Reply, c struct {
			URL   string `json:"url"`
			Title string `json:"title"`
			Start int    `json:"start"`
			End   int    `json:"end"`
		}) Reply {
			return r.Cite(c.URL, c.Title, c.Start, c.End)
		}),
		"choices": stepOf(func(r Reply, list []scriptReply) Reply { return r.Then(Choices(replies(list)...)) }),
		"vectors": stepOf(func(r Reply, v [][]float32) Reply { return r.Then(Vectors(v...)) }),
		"usage": stepOf(func(r Reply, u struct {
			Prompt     int `json:"prompt"`
			Completion int `json:"completion"`
		}) Reply {
			return r.Usage(u.Prompt, u.Completion)
		}),
		"finish": stepOf(func(r Reply, reason llmhttp.FinishReason) Reply { return r.Finish(reason) }),
		"wait":   stepOf(func(r Reply, d duration) Reply { return r.Wait(time.Duration(d)) }),
		"fail":   addFail,
		"break": stepOf(func(r Reply, message string) Reply {
			return r.Break(llmhttp.Errorf(http.StatusInternalServerError, "", "%s", message))
		}),
		"html": stepOf(func(r Reply, status int) Reply { return r.Then(HTML(status)) }),
		"raw": stepOf(func(r Reply, raw struct {
			Status  int               `json:"status"`
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body"`
		}) Reply {
			h := http.Header{}
			for name, value := range raw.Headers {
				h.Set(name, value)
			}
			return r.Then(Raw(raw.Status, h, []byte(raw.Body)))
		}),
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
		d := json.NewDecoder(bytes.NewReader(value))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
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

// addFail adds an error.
func addFail(r Reply, value []byte) (Reply, error) {
	var status int
	if json.Unmarshal(value, &status) == nil {
		return checkStatus(r, status, Fail(status))
	}
	return stepFail(r, value)
}

func stepFail(r Reply, value []byte) (Reply, error) {
	var status int
	longer, err := stepOf(func(r Reply, f struct {
		Status     int      `json:"status"`
		Code       string   `json:"code"`
		Message    string   `json:"message"`
		RetryAfter duration `json:"retry_after"`
	}) Reply {
		status = f.Status
		e := errorFor(f.Status)
		if f.Code != "" {
			e.Code = f.Code
		}
		if f.Message != "" {
			e.Message = f.Message
		}
		e.RetryAfter = time.Duration(f.RetryAfter)
		return r.Then(FailWith(e))
	})(r, value)
	if err != nil {
		return r, err
	}
	return checkStatus(Reply{}, status, longer)
}

// checkStatus returns r with the steps of next, unless status is not that of an error.
func checkStatus(r Reply, status int, next Reply) (Reply, error) {
	if status < 400 || status > 599 {
		return r, fmt.Errorf("the status must be 400 to 599, and not %d", status)
	}
	return r.Then(next), nil
}

type scriptLimits struct {
	RequestsPerMinute int `json:"requests_per_minute"`
	TokensPerMinute   int `json:"tokens_per_minute"`
	Concurrent        int `json:"concurrent"`
}

func (l *scriptLimits) limits() llmhttp.Limits {
	limits := llmhttp.Limits{Concurrent: l.Concurrent}
	if l.RequestsPerMinute > 0 {
		limits.Requests = llmhttp.PerMinute(l.RequestsPerMinute)
	}
	if l.TokensPerMinute > 0 {
		limits.Tokens = llmhttp.PerMinute(l.TokensPerMinute)
	}
	return limits
}

type scriptChaos struct {
	Seed        uint64   `json:"seed"`
	RateLimit   float64  `json:"rate_limit"`
	ServerError float64  `json:"server_error"`
	Overloaded  float64  `json:"overloaded"`
	HTML        float64  `json:"html"`
	Cut         float64  `json:"cut"`
	CutStream   float64  `json:"cut_stream"`
	Malformed   float64  `json:"malformed"`
	Slow        float64  `json:"slow"`
	Delay       duration `json:"delay"`
}

func (c *scriptChaos) chaos() Chaos {
	return Chaos{c.Seed, c.RateLimit, c.ServerError, c.Overloaded, c.HTML, c.Cut, c.CutStream, c.Malformed, c.Slow, time.Duration(c.Delay)}
}

type scriptPace struct {
	FirstToken      duration `json:"first_token"`
	TokensPerSecond float64  `json:"tokens_per_second"`
	Jitter          float64  `json:"jitter"`
}
