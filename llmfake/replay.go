// Recording and replaying.

package llmfake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// ReplayOptions configure a Server that records and replays. The zero value is ready to use.
type ReplayOptions struct {
	// File is the cassette. If empty, it is testdata/llmfake/NAME.txtar with the name of the
	// test.
	File string

	// Record makes the Server record. It also does if the environment variable LLMFAKE_UPDATE is
	// 1 or true, and if the test binary has a boolean flag "update" that is set: a package of
	// tests defines it with
	//
	//	var _ = flag.Bool("update", false, "record the cassettes again")
	//
	// unless it has the flag already for its golden files.
	Record bool

	// OpenAI and Anthropic are the base URLs of the servers to record, as SDKs have them. If
	// empty, they are OPENAI_BASE_URL and ANTHROPIC_BASE_URL of the environment, or the servers
	// of these vendors. Paths other than those of the Messages API are of OpenAI, which may be
	// any server of that API.
	OpenAI, Anthropic string

	// Transport sends requests to the servers. If nil, it is like [http.DefaultTransport].
	Transport http.RoundTripper

	// Ignore has the members of requests in which those of the test may differ from the
	// recorded ones, such as "user" or "metadata.session_id".
	Ignore []string

	// Scrub removes secrets from a text before it is compared or written: a body, an event of a
	// stream, a path, the value of a parameter or of a header. API keys of at least 8 characters and
	// the names of the servers have been removed before. Nil removes nothing more.
	Scrub func(text []byte) []byte

	// Speed is how fast a stream is replayed: 1 is the speed of the recording, and 2 is twice as
	// fast. Zero or negative means without waits.
	Speed float64
}

// NewReplay returns a Server that replies from a cassette, and ends with the test. Nil opts mean
// the zero ReplayOptions.
//
// A request gets the reply that the same request has got when the cassette was recorded: the
// method, the path and the JSON of the body must be equal. If it was recorded several times, the
// replies are given in order. Status, error and stream are as they were, so a connection that
// broke off breaks off again. A request that is not in the cassette fails the test and says what
// differs from the next one; so does a recorded request that does not come.
//
// To record, see ReplayOptions.Record, requests are forwarded to the real servers, with the API
// keys in OPENAI_API_KEY and ANTHROPIC_API_KEY, or without these with the client's. The cassette
// is written when the test has passed. It has only the headers that SDKs read, and never API keys,
// cookies, or host names. Recording needs the network, so it does not work in a bubble of
// testing/synctest.
//
// The methods that set replies, limits and faults have no effect on such a Server.
func NewReplay(t TB, opts *ReplayOptions) *Server {
	t.Helper()
	o := ReplayOptions{}
	if opts != nil {
		o = *opts
	}
	if v := reflect.ValueOf(o.Transport); v.Kind() == reflect.Pointer && v.IsNil() {
		t.Fatalf("llmfake: ReplayOptions.Transport holds a nil %T", o.Transport)
	}
	o.File = cmp.Or(o.File, filepath.Join("testdata", "llmfake", fileName(t.Name())+".txtar"))
	r := &replay{opts: o, recording: o.Record || isUpdate(), scrubber: scrubber{more: o.Scrub}}
	r.findServers(t)
	r.openAIKey, r.anthropicKey = os.Getenv("OPENAI_API_KEY"), os.Getenv("ANTHROPIC_API_KEY")
	r.scrubber.addKey(r.openAIKey)
	r.scrubber.addKey(r.anthropicKey)
	if r.recording {
		r.prepareRecording()
	} else if !r.load(t) {
		r.cassette = &cassette{}
	}
	r.used = make([]bool, len(r.cassette.exchanges))
	s := newServer(t)
	s.replay = r
	s.closeAtEnd()
	return s
}

var unusualInFile = regexp.MustCompile(`[^A-Za-z0-9_./+=-]+`)

// fileName returns a file name for a test.
func fileName(test string) string {
	return strings.ReplaceAll(unusualInFile.ReplaceAllString(test, "_"), "..", "_")
}

// isUpdate reports whether the run of the tests records.
func isUpdate() bool {
	switch os.Getenv("LLMFAKE_UPDATE") {
	case "1", "true":
		return true
	}
	f := flag.Lookup("update")
	if f == nil {
		return false
	}
	getter, ok := f.Value.(flag.Getter)
	return ok && getter.Get() == true
}

// A replay is the state of a Server that [NewReplay] has returned.
type replay struct {
	opts      ReplayOptions
	recording bool

	openAI, anthropic       *url.URL
	openAIKey, anthropicKey string            // "" if the environment has none
	transport               http.RoundTripper // of a recording

	mu       sync.Mutex // guards the fields below
	scrubber scrubber
	cassette *cassette
	used     []bool // which exchanges of the cassette were replayed
}

// load reads the cassette.
func (r *replay) load(t TB) bool {
	t.Helper()
	file, err := os.ReadFile(r.opts.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("llmfake: there is no cassette %s. Record it with real API keys: LLMFAKE_UPDATE=1 go test -run '^%s$'",
			r.opts.File, strings.ReplaceAll(t.Name(), "/", "$/^"))
		return false
	case err != nil:
		t.Fatalf("llmfake: %v", err)
		return false
	}
	if r.cassette, err = decodeCassette(file); err != nil {
		t.Fatalf("llmfake: %s: %v", r.opts.File, err)
		return false
	}
	return true
}

// findServers finds the servers, whose names are removed from texts.
func (r *replay) findServers(t TB) {
	t.Helper()
	parse := func(base string) *url.URL {
		u, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1"))
		if err != nil || u.Host == "" {
			t.Fatalf("llmfake: %q is not the base URL of a server", base)
			return &url.URL{Scheme: "http", Host: "invalid"}
		}
		r.scrubber.addHost(u)
		return u
	}
	r.openAI = parse(cmp.Or(r.opts.OpenAI, os.Getenv("OPENAI_BASE_URL"), "https://api.openai.com/v1"))
	r.anthropic = parse(cmp.Or(r.opts.Anthropic, os.Getenv("ANTHROPIC_BASE_URL"), "https://api.anthropic.com"))
}

// prepareRecording gets what a recording needs.
func (r *replay) prepareRecording() {
	r.cassette = &cassette{}
	if r.transport = r.opts.Transport; r.transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DisableCompression = true
		r.transport = transport
	}
}

// addKeysLocked makes the scrubber remove the API keys of a request.
func (r *replay) addKeysLocked(req *http.Request) {
	r.scrubber.addKey(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	r.scrubber.addKey(req.Header.Get("X-Api-Key"))
}

// serve replies to a request.
func (r *replay) serve(s *Server, ex *exchange, req *http.Request, body []byte) {
	s.decode(ex, req, body)
	h := ex.out.w
	if r.recording {
		r.record(s, ex, h, req, body)
		return
	}
	number, found, difference := r.find(req, body)
	if found == nil {
		s.errorf("%s is not in the cassette %s%s", s.snapshot(ex), r.opts.File, difference)
		e := errUnexpectedReply()
		e.Code, e.Message = "llmfake_not_recorded", "llmfake: this request is not in the cassette. The log of the test, or of the command llmfake, tells what differs."
		s.handler.WriteError(ex.out, req, e)
		ex.out.finish(nil, false)
		return
	}
	s.setReply(req.Context(), fmt.Sprintf("reply %d of %s", number, filepath.Base(r.opts.File)))
	s.log.Info("replaying", "request", s.snapshot(ex).String(), "number", number)
	r.play(ex, req, found)
}

// decode sets the decoded fields of the Request. It gives a copy of the request to the Handler.
func (s *Server) decode(ex *exchange, req *http.Request, body []byte) {
	ex.probe = true
	defer func() { recover(); ex.probe = false }() // a Handler panics to cut a stream
	s.handler.ServeHTTP(httptest.NewRecorder(), withBody(req, body))
}

// snapshot returns the Request as it is now.
func (s *Server) snapshot(ex *exchange) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return new(*ex.request)
}

// find returns the first exchange for the request that was not replayed yet, and its number, or
// how the request differs from the next one.
func (r *replay) find(req *http.Request, body []byte) (number int, found *recorded, difference string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addKeysLocked(req)
	path, body := r.scrubber.scrubURL(req.URL), r.comparable(r.scrubber.scrub(body))
	var next *recorded
	for i, e := range r.cassette.exchanges {
		if r.used[i] || e.method != req.Method || e.path != path {
			continue
		}
		recordedBody := r.comparable(e.requestBody)
		if bytes.Equal(recordedBody, body) {
			r.used[i] = true
			return i + 1, e, ""
		}
		if next == nil {
			next = e
			difference = fmt.Sprintf("\n  the body differs from that of recorded request %d (- got, + recorded):\n%s", i+1,
				diffLines(lines(body), lines(recordedBody)))
		}
	}
	if next == nil {
		difference = fmt.Sprintf(", which has no other %s %s", req.Method, path)
	}
	return 0, nil, difference
}

// comparable returns a body as indented JSON with sorted members, without those to ignore.
func (r *replay) comparable(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return body
	}
	for _, path := range r.opts.Ignore {
		removeMember(v, strings.Split(path, "."))
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return body
	}
	return b
}

// removeMember removes the member of v that path names.
func removeMember(v any, path []string) {
	object, ok := v.(map[string]any)
	switch {
	case !ok:
	case len(path) == 1:
		delete(object, path[0])
	default:
		removeMember(object[path[0]], path[1:])
	}
}

func lines(text []byte) []string { return strings.Split(string(text), "\n") }

// play replies as recorded.
func (r *replay) play(ex *exchange, req *http.Request, e *recorded) {
	w := ex.out.w
	for name, values := range e.header {
		w.Header()[name] = values
	}
	controller := http.NewResponseController(w)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			ex.out.onStatus(e.status)
			w.WriteHeader(e.status)
		}
	}
	for _, p := range e.pieces {
		if p.wait > 0 && r.opts.Speed > 0 && !modelreply.Sleep(req.Context(), time.Duration(float64(p.wait)/r.opts.Speed)) {
			panic(http.ErrAbortHandler)
		}
		begin()
		if _, err := w.Write(p.data); err != nil {
			panic(http.ErrAbortHandler)
		}
		controller.Flush()
	}
	begin()
	if e.cut {
		controller.Flush()
		panic(http.ErrAbortHandler)
	}
}

// record forwards a request and keeps the reply.
func (r *replay) record(s *Server, ex *exchange, w http.ResponseWriter, req *http.Request, body []byte) {
	e := &recorded{method: req.Method, requestHeader: keepHeaders(req.Header, requestHeaders)}
	r.mu.Lock()
	r.addKeysLocked(req)
	r.scrubber.scrubHeader(e.requestHeader)
	e.path, e.requestBody = r.scrubber.scrubURL(req.URL), r.scrubber.scrub(bytes.Clone(body))
	r.cassette.exchanges = append(r.cassette.exchanges, e)
	r.mu.Unlock()
	s.setReply(req.Context(), "recorded")
	began := time.Now()
	s.log.Info("recording", "request", s.snapshot(ex).String())
	res, err := r.transport.RoundTrip(r.outgoing(req, body))
	if err != nil {
		s.errorf("%s could not be recorded: %v", s.snapshot(ex), err)
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	if encoding := res.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		s.errorf("%s could not be recorded: the server has encoded its reply as %s, for which it was not asked", s.snapshot(ex), encoding)
	}
	r.mu.Lock()
	e.status, e.header = res.StatusCode, r.scrubber.scrubHeader(keepHeaders(res.Header, replyHeaders, replyPrefixes...))
	r.mu.Unlock()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	ex.out.onStatus(res.StatusCode)
	w.WriteHeader(res.StatusCode)
	err = r.copy(w, res, e, began)
	if err != nil {
		// A client that leaves, perhaps after [DONE], will leave at the same place again.
		e.cut = req.Context().Err() == nil
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// outgoing returns the request for the real server.
func (r *replay) outgoing(req *http.Request, body []byte) *http.Request {
	out := req.Clone(req.Context())
	out.RequestURI, out.Body, out.ContentLength = "", io.NopCloser(bytes.NewReader(body)), int64(len(body))
	server := r.openAI
	if protocolOf(req.URL.Path) == Messages || req.Header.Get("Anthropic-Version") != "" {
		server = r.anthropic
		if r.anthropicKey != "" {
			out.Header.Del("Authorization")
			out.Header.Set("X-Api-Key", r.anthropicKey)
		}
	} else if r.openAIKey != "" {
		out.Header.Set("Authorization", "Bearer "+r.openAIKey)
	}
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, server.Host
	out.URL.Path, out.URL.RawPath = server.Path+req.URL.Path, ""
	for _, name := range []string{"Accept-Encoding", "Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade"} {
		out.Header.Del(name)
	}
	return out
}

// copy copies a reply to the client and into e. It returns an error if the connection to the
// server is lost.
func (r *replay) copy(w http.ResponseWriter, res *http.Response, e *recorded, last time.Time) error {
	isStream := isEventStream(res.Header)
	var pending []byte
	keep := func(data []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		e.pieces = append(e.pieces, piece{now.Sub(last), r.scrubber.scrub(bytes.Clone(data))})
		last = now
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			w.Write(buf[:n]) // if the client has left, the next Read fails
			http.NewResponseController(w).Flush()
			pending = append(pending, buf[:n]...)
		}
		if isStream {
			pending = bytes.ReplaceAll(pending, []byte("\r\n"), []byte("\n"))
			for {
				i := bytes.Index(pending, []byte("\n\n"))
				if i < 0 {
					break
				}
				keep(pending[:i+2])
				pending = pending[i+2:]
			}
		}
		if err != nil {
			if len(pending) > 0 {
				keep(pending)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// finish writes the cassette, or fails the test if a part of it was not replayed.
func (r *replay) finish(s *Server) {
	s.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.recording {
		var left strings.Builder
		n := 0
		for i, e := range r.cassette.exchanges {
			if !r.used[i] {
				n++
				fmt.Fprintf(&left, "\n    recorded request %d: %s %s", i+1, e.method, e.path)
			}
		}
		if n > 0 {
			s.errorf("%s of the cassette %s did not come:%s", plural(n, "request"), r.opts.File, left.String())
		}
		return
	}
	if s.t.Failed() {
		s.t.Logf("llmfake: the test has failed, so the cassette %s was not written", r.opts.File)
		return
	}
	if err := os.MkdirAll(filepath.Dir(r.opts.File), 0o755); err != nil {
		s.errorf("%v", err)
		return
	}
	if err := os.WriteFile(r.opts.File, r.cassette.encode(), 0o644); err != nil {
		s.errorf("%v", err)
	}
}
