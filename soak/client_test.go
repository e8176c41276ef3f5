package soak

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// A wire describes a protocol or an endpoint to the clients.
type wire struct {
	path     string
	body     string                   // with the text of the request in place of TEXT; empty for a GET
	terminal func(e event) bool       // whether an event ends a complete stream; nil if there are no streams
	text     func(e event) string     // the text that an event adds
	whole    func(body []byte) string // the text of a whole reply
}

// An event is a server-sent event.
type event struct{ kind, data string }

func named(names ...string) func(e event) bool {
	return func(e event) bool {
		for _, name := range names {
			if e.kind == name {
				return true
			}
		}
		return false
	}
}

var wires = []wire{
	{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"TEXT"}],"stream":STREAM}`,
		func(e event) bool { return e.data == "[DONE]" },
		func(e event) string { return find(e.data, "choices", 0, "delta", "content") },
		func(b []byte) string { return find(string(b), "choices", 0, "message", "content") }},
	{"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"TEXT"}],"stream":STREAM}`, named("message_stop"),
		func(e event) string { return find(e.data, "delta", "text") },
		func(b []byte) string { return find(string(b), "content", 0, "text") }},
	{"/v1/responses", `{"model":"m","input":"TEXT","stream":STREAM}`, named("response.completed", "response.incomplete"),
		func(e event) string {
			if e.kind != "response.output_text.delta" {
				return ""
			}
			return find(e.data, "delta")
		},
		func(b []byte) string { return find(string(b), "output", 0, "content", 0, "text") }},
	{"/v1/embeddings", `{"model":"m","input":"TEXT"}`, nil, nil, nil},
	{"/v1/audio/speech", `{"model":"m","input":"TEXT","voice":"v"}`, nil, nil, func(b []byte) string { return string(b) }},
	{"/v1/audio/speech", `{"model":"m","input":"TEXT","voice":"v","stream_format":"sse"}`,
		func(e event) bool { return find(e.data, "type") == "speech.audio.done" },
		func(e event) string {
			audio, err := base64.StdEncoding.DecodeString(find(e.data, "audio"))
			if err != nil {
				return err.Error()
			}
			return string(audio)
		}, nil},
	{"/v1/images/generations", `{"model":"m","prompt":"TEXT"}`, nil, nil, nil},
	{"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`, nil, nil, nil},
	{"/v1/models", "", nil, nil, nil},
	{"/v1/dashboard/billing/usage?start_date=2026-01-01&end_date=2026-01-02", "", nil, nil, nil},
}

// find returns the string at a path of JSON, or "".
func find(text string, path ...any) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return ""
	}
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := v.(map[string]any)
			v = object[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return ""
			}
			v = list[step]
		}
	}
	s, _ := v.(string)
	return s
}

// A clientBehavior is one way in which a client misbehaves, or wellBehaved.
type clientBehavior int

const (
	wellBehaved clientBehavior = iota
	leaveEarly
	leaveInReply
	readSlowly
	sendSlowly
	sendPart
	sendTooMuch
	sendGarbage
	wrongKey
	wrongPath
	wrongType
	narrowKey
	halfHeader
	clientBehaviorCount
)

// A clientPlan is what the client of request n does.
type clientPlan struct {
	sim      *simulation
	n        int
	rng      *rand.Rand
	wire     *wire
	stream   bool
	behavior clientBehavior
	slow     bool // a timeout has passed, or another request could not read the quota for this one
}

func (sim *simulation) clientPlan(n int) *clientPlan {
	p := &clientPlan{sim: sim, n: n, rng: sim.rand(n, forClient)}
	p.wire = &wires[p.rng.IntN(3)] // chats are most of the requests
	if p.rng.IntN(4) == 0 {
		p.wire = &wires[p.rng.IntN(len(wires))]
	}
	p.stream = p.wire.terminal != nil && p.rng.IntN(2) == 0
	if p.rng.IntN(2) == 0 {
		p.behavior = clientBehavior(p.rng.IntN(int(clientBehaviorCount)))
	}
	return p
}

// mustSucceed reports whether the request must succeed, because neither the client nor
// the host misbehaves.
func (p *clientPlan) mustSucceed() bool {
	sim := p.sim
	b := sim.script(p.n).behavior
	return (p.behavior == wellBehaved || p.behavior == readSlowly || p.behavior == sendSlowly) &&
		(b == behave || b == slowChunks || b == ignoreStop || b == yieldLater) &&
		!p.slow && !sim.shutdown && !sim.exits(p.n) && !sim.keysFail(p.n) && !sim.quotaFails(p.n) && !sim.limiterFails(p.n) && !sim.observerFails(p.n) && !sim.responsesFail(p.n) && (p.wire.body != "" || !sim.usageFails(p.n))
}

// send sends request n and checks the reply.
func (sim *simulation) send(n int) {
	p := sim.clientPlan(n)
	if p.behavior == halfHeader && sim.kind != serverHTTP2 {
		p.sendHalfHeader()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := p.request(ctx)
	if p.behavior == leaveEarly {
		timer := time.AfterFunc(time.Duration(p.rng.Int64N(int64(20*time.Millisecond))), cancel)
		defer timer.Stop()
	}
	resp, err := sim.client.Do(req)
	if err != nil {
		if p.mustSucceed() {
			sim.fail("request %d: %v", n, err)
		}
		return
	}
	defer resp.Body.Close()
	p.checkReply(resp, cancel)
}

func (p *clientPlan) request(ctx context.Context) *http.Request {
	body := strings.Replace(p.wire.body, "TEXT", mark(p.n), 1)
	body = strings.Replace(body, "STREAM", fmt.Sprint(p.stream), 1)
	method, path, key := "POST", p.wire.path, "sk-good"
	if body == "" {
		method = "GET"
	}
	var r io.Reader = strings.NewReader(body)
	switch p.behavior {
	case sendSlowly:
		r = &slowReader{r: r, rng: p.rng}
	case sendPart:
		r = io.MultiReader(strings.NewReader(body[:p.rng.IntN(len(body)+1)]), failingReader{})
	case sendTooMuch:
		r = strings.NewReader(body + strings.Repeat(" ", maxBody))
	case sendGarbage:
		r = strings.NewReader(body[:p.rng.IntN(len(body)+1)] + "\x00")
	case wrongKey:
		key = "sk-wrong"
	case narrowKey:
		key = "sk-narrow"
	case wrongPath:
		path = "/v1/" + mark(p.n)
	}
	if method == "GET" {
		r = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, p.sim.server.URL+strings.Replace(path, "#", "%23", -1), r)
	if err != nil {
		panic(err)
	}
	req.Close = p.sim.exits(p.n) // net/http may close the connection after the reply
	req.Header.Set("X-Soak", requestID(p.n))
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if p.behavior == wrongType {
		req.Header.Set("Content-Type", "text/plain")
	}
	return req
}

// checkReply reads a reply, or a part of it, and checks it.
func (p *clientPlan) checkReply(resp *http.Response, cancel context.CancelFunc) {
	var r io.Reader = resp.Body
	switch p.behavior {
	case readSlowly:
		r = &slowReader{r: r, rng: p.rng}
	case leaveInReply:
		r = io.LimitReader(r, p.rng.Int64N(2000))
	}
	body, err := io.ReadAll(r)
	if p.behavior == leaveInReply {
		cancel()
		return
	}
	fail := func(format string, args ...any) {
		p.sim.fail("request %d (%s, client behavior %d, Backend behavior %d): %s; status %d, read error %v, body %.2000q", p.n, p.wire.path, p.behavior, p.sim.script(p.n).behavior,
			fmt.Sprintf(format, args...), resp.StatusCode, err, body)
	}
	for _, m := range markPattern.FindAllSubmatch(body, -1) {
		if string(m[1]) != fmt.Sprint(p.n) {
			fail("the reply has a part of request %s", m[1])
		}
	}
	if bytes.Contains(body, []byte("late")) {
		fail("the reply has a chunk that came late")
	}
	if resp.StatusCode == 408 || bytes.Contains(body, []byte("did not answer in time")) || bytes.Contains(body, []byte("could not check your rate limits")) {
		p.slow = true // the former can happen on a busy machine
	}
	switch {
	case p.mustSucceed() && (resp.StatusCode != 200 || err != nil):
		fail("it must succeed")
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		p.checkStream(body, err, fail)
	case err == nil:
		p.checkWhole(resp, body, fail)
	case !p.cutAllowed() && !isAudio(resp):
		fail("a whole reply was cut")
	}
}

// cutAllowed reports whether the server may cut the connection.
func (p *clientPlan) cutAllowed() bool {
	return p.sim.isClosing() || p.behavior == leaveEarly || p.behavior == sendPart || p.behavior == sendTooMuch || p.behavior == sendSlowly ||
		p.sim.script(p.n).behavior == exitLate || p.sim.exits(p.n)
}

var markPattern = regexp.MustCompile(`#(\d+)#`)

// isAudio reports whether a reply is bytes of audio, which a failure cuts.
func isAudio(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "audio/")
}

func (p *clientPlan) checkWhole(resp *http.Response, body []byte, fail func(string, ...any)) {
	if !isAudio(resp) && !json.Valid(body) {
		fail("the reply is not JSON")
	}
	if p.mustSucceed() && p.wire.whole != nil {
		if want := p.sim.script(p.n).text(); p.wire.whole(body) != want {
			fail("the text is not %q", want)
		}
	}
	if resp.StatusCode == 200 && p.wire.path == "/v1/embeddings" && !bytes.Contains(body, fmt.Appendf(nil, `"embedding":[%d]`, p.n)) {
		fail("the vector is not [%d]", p.n)
	}
}

// checkStream checks that a stream either ends with its last event, or with an error event.
// After that of chat completions the connection is cut.
func (p *clientPlan) checkStream(body []byte, err error, fail func(string, ...any)) {
	var text strings.Builder
	complete, failed := false, false
	for _, e := range parseEvents(string(body)) {
		if complete || failed {
			fail("there is more after the last event: %q", e)
			return
		}
		complete = p.wire.terminal(e)
		failed = e.kind == "response.failed" || e.kind == "error" && p.wire.path != "/v1/responses" // where that follows it
		text.WriteString(p.wire.text(e))
	}
	switch {
	case err == nil && !complete && !failed:
		fail("a stream that is not complete ended like one that is")
	case err != nil && complete && !p.cutAllowed():
		fail("a complete stream was cut")
	case err != nil && failed && !p.cutAllowed():
		fail("a stream that failed was cut after its error event")
	case p.mustSucceed() && text.String() != p.sim.script(p.n).text():
		fail("the text is not %q but %q", p.sim.script(p.n).text(), text.String())
	}
}

// parseEvents returns the complete events of a stream.
func parseEvents(body string) (events []event) {
	var e event
	for line := range strings.SplitSeq(body, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if e.data != "" {
				events = append(events, e)
			}
			e = event{}
		case name == "event":
			e.kind = value
		case name == "data":
			e.data += value
		}
	}
	return events
}

// sendHalfHeader opens a connection and closes it within the header of a request.
func (p *clientPlan) sendHalfHeader() {
	c, err := net.Dial("tcp", p.sim.server.Listener.Addr().String())
	if err != nil {
		p.sim.fail("request %d: %v", p.n, err)
		return
	}
	defer c.Close()
	const header = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
	io.WriteString(c, header[:p.rng.IntN(len(header))])
	time.Sleep(time.Duration(p.rng.Int64N(int64(5 * time.Millisecond))))
}

// A slowReader reads little at a time, with pauses.
type slowReader struct {
	r      io.Reader
	rng    *rand.Rand
	pauses int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.pauses++; s.pauses < 20 {
		time.Sleep(time.Duration(s.rng.Int64N(int64(5 * time.Millisecond))))
		p = p[:min(len(p), 1+s.rng.IntN(200))]
	}
	return s.r.Read(p)
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the client stops sending") }
