package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/llmhttp/llmhttp"
)

// A pipeServer is an http.Server without a network, so that it can live in a
// synctest bubble. It speaks HTTP/1.1 and, to clients that begin with it,
// HTTP/2.
type pipeServer struct {
	srv   *http.Server
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeServer(t testing.TB, h http.Handler) *pipeServer {
	s := &pipeServer{conns: make(chan net.Conn), done: make(chan struct{})}
	s.srv = &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.srv.Protocols.SetHTTP1(true)
	s.srv.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.srv.Serve(s)
	}()
	t.Cleanup(func() {
		s.srv.Close()
		<-served
	})
	return s
}

func (s *pipeServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *pipeServer) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

func (s *pipeServer) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

func (s *pipeServer) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.conns <- server:
		return client, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// client returns a client that speaks HTTP/1.1 or HTTP/2 to s.
func (s *pipeServer) client(t testing.TB, http2 bool) *http.Client {
	tr := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return s.dial() },
		Protocols:          new(http.Protocols),
		DisableCompression: true,
	}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// anyKey admits every bearer of a key.
var anyKey = llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) {
	return &llmhttp.Key{ID: "key_1", Account: "acme"}, nil
})

// chunksOf returns a Backend that yields what make returns, afresh for each request.
func chunksOf(make func() []*llmhttp.ChatChunk) llmhttp.BackendFunc {
	return func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return old_streamOf(make()) }
}

func old_streamOf(chunks []*llmhttp.ChatChunk) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// textChunks returns a function for chunksOf that says pieces.
func textChunks(pieces ...string) func() []*llmhttp.ChatChunk {
	return func() []*llmhttp.ChatChunk {
		var list []*llmhttp.ChatChunk
		for _, p := range pieces {
			list = append(list, llmhttp.TextChunk(p))
		}
		return list
	}
}

func parseChunk(t testing.TB, s string) *llmhttp.ChatChunk {
	t.Helper()
	c := new(llmhttp.ChatChunk)
	if err := json.Unmarshal([]byte(s), c); err != nil {
		t.Fatalf("chunk %s: %v", s, err)
	}
	return c
}

// jsonChunks is like textChunks, but of chunks as JSON.
func jsonChunks(t testing.TB, lines ...string) func() []*llmhttp.ChatChunk {
	return func() []*llmhttp.ChatChunk {
		var list []*llmhttp.ChatChunk
		for _, l := range lines {
			list = append(list, parseChunk(t, l))
		}
		return list
	}
}

// A chatAsk is what a test asks for.
type chatAsk struct {
	stream, usage bool
	n             int
}

func (a chatAsk) body() string {
	n := max(a.n, 1)
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":%d,"stream":%t,"stream_options":{"include_usage":%t}}`, n, a.stream, a.usage)
}

// ask serves one chat without a network and returns the reply, and whether the
// connection was cut.
func ask(t testing.TB, h http.Handler, a chatAsk) (w *httptest.ResponseRecorder, cut bool) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(a.body()))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sk-test")
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			cut = true
		}
	}()
	h.ServeHTTP(w, r)
	return w, false
}

// askStream asks for a stream and returns its bytes. It fails unless the
// stream came to a clean end.
func askStream(t testing.TB, b llmhttp.Backend, a chatAsk) []byte {
	t.Helper()
	a.stream = true
	w, cut := ask(t, llmhttp.NewHandler(b, anyKey, nil), a)
	if w.Code != 200 || cut {
		t.Fatalf("status %d, cut %t: %s", w.Code, cut, w.Body)
	}
	return w.Body.Bytes()
}

// A joinedReply is what a client makes of a stream, or reads from a whole reply.
type joinedReply struct {
	ID, Model string
	Created   int64
	Choices   map[int]*joinedMessage
	Usage     string // as JSON
	Comments  int
	Chunks    int
}

type joinedMessage struct {
	Content, Reasoning, Finish string
	Calls                      []joinedToolCall
}

type joinedToolCall struct{ ID, Type, Name, Args string }

// old_checkStream fails t unless stream is a legal stream with choices among the
// first n, and with usage if usage is true. It returns what a client joins.
func old_checkStream(t testing.TB, stream []byte, n int, usage bool) *joinedReply {
	t.Helper()
	j, err := old_readStream(stream, n, usage)
	if err != nil {
		t.Fatalf("illegal stream: %v\n%s", err, clipText(string(stream)))
	}
	return j
}

func clipText(s string) string {
	if len(s) > 4000 {
		return s[:2000] + "\n...\n" + s[len(s)-2000:]
	}
	return s
}

// old_splitEvents returns the data of each event, of lines that are as the format
// allows: "data: ", an empty line, and comments between events.
func old_splitEvents(stream string) (events []string, comments int, err error) {
	if strings.ContainsAny(stream, "\r\u0085\u2028\u2029") {
		return nil, 0, errors.New("a character that ends lines for some readers")
	}
	if !utf8.ValidString(stream) {
		return nil, 0, errors.New("not UTF-8")
	}
	rest := stream
	for rest != "" {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return events, comments, fmt.Errorf("the last line %q has no end", line)
		}
		rest = after
		if line == ": keep-alive" {
			comments++
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "" {
			return events, comments, fmt.Errorf("line %q", line)
		}
		if rest, ok = strings.CutPrefix(rest, "\n"); !ok {
			return events, comments, fmt.Errorf("no empty line after %q", line)
		}
		events = append(events, data)
	}
	return events, comments, nil
}

type streamState struct {
	reply *joinedReply
	open  map[int]bool
	ended map[int]bool
	usage bool
}

// old_readStream checks every rule of the grammar. It knows nothing of how the
// Handler writes a stream.
func old_readStream(stream []byte, n int, usage bool) (*joinedReply, error) {
	events, comments, err := old_splitEvents(string(stream))
	if err != nil {
		return nil, err
	}
	if len(events) == 0 || events[len(events)-1] != "[DONE]" {
		return nil, errors.New("no [DONE] at the end")
	}
	s := streamState{reply: &joinedReply{Choices: map[int]*joinedMessage{}, Comments: comments}, open: map[int]bool{}, ended: map[int]bool{}}
	for i, data := range events[:len(events)-1] {
		if err := s.event(data, i, n, usage); err != nil {
			return nil, fmt.Errorf("event %d, %s: %w", i, clipText(data), err)
		}
	}
	for index := range s.open {
		if !s.ended[index] {
			return nil, fmt.Errorf("choice %d has no end", index)
		}
	}
	switch {
	case !s.open[0]:
		return nil, errors.New("no choice 0")
	case usage && !s.usage:
		return nil, errors.New("no usage")
	}
	return s.reply, nil
}

type old_object map[string]json.RawMessage

func (o old_object) has(names ...string) error {
	if got := slices.Sorted(maps.Keys(o)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		return fmt.Errorf("members %q, want %q", got, names)
	}
	return nil
}

func (s *streamState) event(data string, i, n int, usage bool) error {
	if !jsontext.Value(data).IsValid() {
		return errors.New("not strictly JSON")
	}
	if !strings.HasPrefix(data, `{"id":"`) {
		return errors.New("does not begin with id")
	}
	var c old_object
	var head struct {
		ID, Object, Model string
		Created           int64
	}
	if err := errors.Join(json.Unmarshal([]byte(data), &c), json.Unmarshal([]byte(data), &head)); err != nil {
		return err
	}
	r := s.reply
	switch {
	case c["error"] != nil:
		return errors.New("an error member")
	case head.Object != "chat.completion.chunk":
		return fmt.Errorf("old_object %q", head.Object)
	case head.ID == "" || head.Created == 0 || head.Model == "":
		return errors.New("incomplete head")
	case i == 0:
		r.ID, r.Model, r.Created = head.ID, head.Model, head.Created
	case r.ID != head.ID || r.Model != head.Model || r.Created != head.Created:
		return errors.New("another id, model or created")
	}
	if s.usage {
		return errors.New("follows the usage")
	}
	var choices []old_object
	if err := json.Unmarshal(c["choices"], &choices); err != nil || choices == nil {
		return fmt.Errorf("choices: %v", err)
	}
	if u, ok := c["usage"]; ok && string(u) != "null" {
		if !usage {
			return errors.New("usage that nobody asked for")
		}
		if len(choices) > 0 {
			return errors.New("usage beside choices")
		}
		if len(s.open) == 0 || len(s.ended) != len(s.open) {
			return errors.New("usage before the end")
		}
		s.usage = true
		r.Usage = string(u)
		for _, name := range []string{"id", "object", "created", "model", "choices", "usage"} {
			if c[name] == nil {
				return fmt.Errorf("usage without %s", name)
			}
		}
		if c["error"] != nil {
			return errors.New("usage beside an error")
		}
		return nil // what else there is, is the Backend's
	}
	if len(choices) == 0 {
		return errors.New("no choices")
	}
	r.Chunks++
	for _, choice := range choices {
		if err := s.choice(choice, i, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *streamState) choice(c old_object, event, n int) error {
	var index *int
	var reason *string
	if err := json.Unmarshal(c["index"], &index); err != nil || index == nil || *index < 0 || *index >= n {
		return fmt.Errorf("index %s: %v", c["index"], err)
	}
	if event == 0 && *index != 0 {
		return fmt.Errorf("the first choice is %d", *index)
	}
	raw, ok := c["finish_reason"]
	if !ok {
		return errors.New("no finish_reason")
	}
	if err := json.Unmarshal(raw, &reason); err != nil || (reason != nil && *reason == "") {
		return fmt.Errorf("finish_reason %s: %v", raw, err)
	}
	var delta old_object
	if err := json.Unmarshal(c["delta"], &delta); err != nil || delta == nil {
		return fmt.Errorf("delta %s: %v", c["delta"], err)
	}
	switch {
	case s.ended[*index]:
		return errors.New("follows the end of its choice")
	case !s.open[*index]:
		s.open[*index] = true
		s.reply.Choices[*index] = new(joinedMessage)
		if reason != nil || string(c["delta"]) != `{"role":"assistant","content":""}` {
			return errors.New("not the announcement of the role")
		}
		return c.has("index", "delta", "finish_reason")
	case reason != nil:
		s.ended[*index] = true
		s.reply.Choices[*index].Finish = *reason
		if string(c["delta"]) != `{"content":null}` {
			return errors.New("the end says something")
		}
		return nil
	}
	return s.reply.Choices[*index].add(delta)
}

func (m *joinedMessage) add(delta old_object) error {
	if delta["role"] != nil {
		return errors.New("the role again")
	}
	for name, to := range map[string]*string{"content": &m.Content, "reasoning_content": &m.Reasoning} {
		raw, ok := delta[name]
		if !ok {
			continue
		}
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil || s == nil || *s == "" {
			return fmt.Errorf("%s is %s: %v", name, raw, err)
		}
		*to += *s
	}
	raw, ok := delta["tool_calls"]
	if !ok {
		return nil
	}
	var calls []struct {
		Index    *int
		ID, Type *string
		Function *struct{ Name, Arguments *string }
	}
	if err := json.Unmarshal(raw, &calls); err != nil || len(calls) == 0 {
		return fmt.Errorf("tool_calls %s: %v", raw, err)
	}
	for _, c := range calls {
		if c.Index == nil || *c.Index < 0 || *c.Index > len(m.Calls) {
			return errors.New("the index of a tool call is not the next")
		}
		if *c.Index == len(m.Calls) {
			if c.ID == nil || *c.ID == "" || c.Type == nil || *c.Type == "" {
				return errors.New("a tool call without id or type")
			}
			if slices.ContainsFunc(m.Calls, func(have joinedToolCall) bool { return have.ID == *c.ID }) {
				return errors.New("two tool calls of one id")
			}
			m.Calls = append(m.Calls, joinedToolCall{ID: *c.ID, Type: *c.Type})
			if *c.Type == "function" && c.Function == nil {
				return errors.New("a tool call without function")
			}
			if c.Function != nil && c.Function.Name != nil {
				m.Calls[*c.Index].Name = *c.Function.Name
			}
		} else {
			switch {
			case c.ID != nil:
				return errors.New("the id of a tool call again")
			case c.Type != nil && (*c.Type == "function" || *c.Type != m.Calls[*c.Index].Type):
				return errors.New("the type of a tool call again")
			case c.Function != nil && c.Function.Name != nil:
				return errors.New("the name of a tool call again")
			}
		}
		if c.Function != nil && c.Function.Arguments != nil {
			m.Calls[*c.Index].Args += *c.Function.Arguments
		}
	}
	return nil
}

// readWhole reads a whole reply as old_checkStream joins a stream.
func readWhole(t testing.TB, body []byte) *joinedReply {
	t.Helper()
	if !jsontext.Value(body).IsValid() {
		t.Fatalf("not strictly JSON: %s", clipText(string(body)))
	}
	var r struct {
		ID, Object, Model string
		Created           int64
		Usage             json.RawMessage
		Choices           []struct {
			Index        int
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Role      string
				Content   *string
				Reasoning string `json:"reasoning_content"`
				ToolCalls []struct {
					ID, Type string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v: %s", err, clipText(string(body)))
	}
	j := &joinedReply{ID: r.ID, Model: r.Model, Created: r.Created, Usage: string(r.Usage), Choices: map[int]*joinedMessage{}}
	for _, c := range r.Choices {
		m := &joinedMessage{Reasoning: c.Message.Reasoning, Finish: c.FinishReason}
		if c.Message.Content != nil {
			m.Content = *c.Message.Content
		}
		for _, call := range c.Message.ToolCalls {
			m.Calls = append(m.Calls, joinedToolCall{call.ID, call.Type, call.Function.Name, call.Function.Arguments})
		}
		if c.Message.Role != "assistant" || j.Choices[c.Index] != nil {
			t.Fatalf("role %q of choice %d: %s", c.Message.Role, c.Index, clipText(string(body)))
		}
		j.Choices[c.Index] = m
	}
	return j
}

// parseArchive reads the txtar format: a comment, then files, each after a
// line "-- name --".
func parseArchive(data []byte) (comment string, files []archiveFile) {
	name := ""
	var body bytes.Buffer
	flush := func() {
		if name == "" {
			comment = body.String()
		} else {
			files = append(files, archiveFile{name, body.String()})
		}
		body.Reset()
	}
	for line := range bytes.Lines(data) {
		if s := strings.TrimSpace(string(line)); strings.HasPrefix(s, "-- ") && strings.HasSuffix(s, " --") && len(s) > 6 {
			flush()
			name = s[3 : len(s)-3]
			continue
		}
		body.Write(line)
	}
	flush()
	return comment, files
}

func formatArchive(comment string, files []archiveFile) []byte {
	var b bytes.Buffer
	b.WriteString(comment)
	for _, f := range files {
		fmt.Fprintf(&b, "-- %s --\n%s", f.name, f.data)
		if f.data != "" && !strings.HasSuffix(f.data, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

type archiveFile struct{ name, data string }

// keptUsage is a UsageStore in memory.
type keptUsage struct {
	mu      sync.Mutex
	records []llmhttp.UsageRecord
	ids     map[string]bool
}

func (u *keptUsage) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range records {
		if u.ids == nil {
			u.ids = map[string]bool{}
		}
		if !u.ids[r.ID] {
			u.ids[r.ID] = true
			u.records = append(u.records, r)
		}
	}
	return nil
}

func (u *keptUsage) Query(_ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var sums []llmhttp.UsageSum
	for _, r := range u.records {
		if r.Account != q.Account || r.Time.Before(q.From) || !r.Time.Before(q.To) {
			continue
		}
		start := q.From
		if q.Step > 0 {
			start = q.From.Add(r.Time.Sub(q.From) / q.Step * q.Step)
		}
		i := slices.IndexFunc(sums, func(s llmhttp.UsageSum) bool { return s.Start.Equal(start) && s.Model == r.Model })
		if i < 0 {
			i = len(sums)
			sums = append(sums, llmhttp.UsageSum{Start: start, Model: r.Model})
		}
		s := &sums[i]
		s.Requests++
		s.PromptTokens += int64(r.Usage.PromptTokens)
		s.CompletionTokens += int64(r.Usage.CompletionTokens)
		s.Images += int64(r.Images)
	}
	slices.SortFunc(sums, func(a, b llmhttp.UsageSum) int {
		if c := a.Start.Compare(b.Start); c != 0 {
			return c
		}
		return strings.Compare(a.Model, b.Model)
	})
	return sums, nil
}

func (u *keptUsage) all() []llmhttp.UsageRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.records)
}

// readFor reads from r until what was read contains want.
func readFor(r io.Reader, read *bytes.Buffer, want string) error {
	buf := make([]byte, 4096)
	for !strings.Contains(read.String(), want) {
		n, err := r.Read(buf)
		read.Write(buf[:n])
		if err != nil && !strings.Contains(read.String(), want) {
			return fmt.Errorf("no %q in %q: %w", want, clipText(read.String()), err)
		}
	}
	return nil
}

// within fails t unless f returns soon. It is for what would hang otherwise.
func within(t testing.TB, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatal("hangs")
	}
}

// old_noLog logs nothing.
var old_noLog = slog.New(slog.DiscardHandler)
