// The file of a recording. It keeps only headers that are listed here, because any other may tell who
// has recorded it.

package llmfake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// A cassette is a list of requests and replies. Its file is a txtar archive with a file for each
// request and one for each reply, which begin with headers and an empty line.
//
//	-- 1: POST /v1/chat/completions --
//	Content-Type: application/json
//
//	{
//	  "model": "gpt-4o"
//	}
//	-- 1: 200 OK --
//	Content-Type: text/event-stream
//
//	: +412ms
//	data: {"id": ...}
//
// JSON is indented. A comment with a duration in an event stream is the time since the event
// before it. The headers that begin with Llmfake are not of the message:
//
//   - Llmfake-Wait is the time until a reply that is not a stream.
//   - Llmfake-Body is "base64" for what is not text, and "no newline" if the newline at the end
//     of the section is not of the body.
//   - Llmfake-End is "cut" if the connection was lost.
type cassette struct{ exchanges []*recorded }

// A recorded is a request and its reply.
type recorded struct {
	method, path  string
	requestHeader http.Header
	requestBody   []byte
	status        int
	header        http.Header
	pieces        []piece
	cut           bool // the connection was lost
}

// A piece is an event of a stream or a whole body.
type piece struct {
	wait time.Duration // since the piece before it
	data []byte
}

const (
	cassetteHead = "llmfake cassette 1\n\n" +
		"Requests and replies of a real server, without API keys, cookies and host names.\n" +
		"Record it again with: go test -update, or LLMFAKE_UPDATE=1 go test\n\n"

	headerWait = "Llmfake-Wait"
	headerBody = "Llmfake-Body"
	headerEnd  = "Llmfake-End"

	bodyBase64    = "base64"
	bodyNoNewline = "no newline"
)

// encode returns the file of c.
func (c *cassette) encode() []byte {
	archive := txtar.Archive{Comment: []byte(cassetteHead)}
	add := func(i int, title string, h http.Header, pieces []piece) {
		archive.Files = append(archive.Files, txtar.File{
			Name: fmt.Sprintf("%d: %s", i+1, strings.TrimSpace(title)),
			Data: encodeMessage(h, pieces),
		})
	}
	for i, e := range c.exchanges {
		add(i, e.method+" "+e.path, e.requestHeader, []piece{{data: e.requestBody}})
		h := e.header.Clone()
		if e.cut {
			h.Set(headerEnd, "cut")
		}
		add(i, fmt.Sprintf("%d %s", e.status, http.StatusText(e.status)), h, e.pieces)
	}
	return txtar.Format(&archive)
}

// encodeMessage returns a message as it stands in the archive.
func encodeMessage(h http.Header, pieces []piece) []byte {
	if h == nil {
		h = http.Header{}
	}
	h = h.Clone()
	isStream := isEventStream(h)
	var body bytes.Buffer
	for _, p := range pieces {
		if ms := p.wait.Round(time.Millisecond); ms > 0 && isStream {
			fmt.Fprintf(&body, ": +%v\n", ms)
		} else if ms > 0 {
			h.Set(headerWait, ms.String())
		}
		body.Write(p.data)
	}
	text := body.Bytes()
	switch {
	case len(text) == 0:
	case json.Valid(text):
		var indented bytes.Buffer
		json.Indent(&indented, bytes.TrimSpace(text), "", "  ") // cannot fail for valid JSON
		text = append(indented.Bytes(), '\n')
		h.Del(headerBody)
	case !isText(text):
		h.Set(headerBody, bodyBase64)
		text = append([]byte(base64.StdEncoding.EncodeToString(text)), '\n')
	case !bytes.HasSuffix(text, []byte("\n")):
		h.Set(headerBody, bodyNoNewline)
		text = append(text, '\n')
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	b.WriteByte('\n')
	b.Write(text)
	return b.Bytes()
}

// isText reports whether body can be written into the archive as it is.
func isText(body []byte) bool {
	return utf8.Valid(body) && !bytes.ContainsAny(body, "\r\x00") && len(txtar.Parse(body).Files) == 0
}

func isEventStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// decodeCassette reads a file.
func decodeCassette(file []byte) (*cassette, error) {
	file = bytes.ReplaceAll(file, []byte("\r\n"), []byte("\n")) // as git may have made it
	if !bytes.HasPrefix(file, []byte("llmfake cassette 1\n")) {
		return nil, errors.New("the file is not an llmfake cassette of version 1")
	}
	c := &cassette{}
	var open *recorded
	for _, f := range txtar.Parse(file).Files {
		_, title, hasNumber := strings.Cut(f.Name, ": ")
		h, pieces, err := decodeMessage(f.Data)
		if err != nil {
			return nil, fmt.Errorf("section %q: %v", f.Name, err)
		}
		first, rest, _ := strings.Cut(title, " ")
		status, err := strconv.Atoi(first)
		switch {
		case hasNumber && err != nil && open == nil:
			open = &recorded{method: first, path: rest, requestHeader: h}
			for _, p := range pieces {
				open.requestBody = append(open.requestBody, p.data...)
			}
		case err == nil && open != nil:
			open.status, open.cut, open.pieces = status, h.Get(headerEnd) == "cut", pieces
			h.Del(headerEnd)
			open.header = h
			c.exchanges = append(c.exchanges, open)
			open = nil
		default:
			return nil, fmt.Errorf("section %q: a reply must follow each request", f.Name)
		}
	}
	if open != nil {
		return nil, errors.New("the last request has no reply")
	}
	return c, nil
}

// decodeMessage reads what encodeMessage has written.
func decodeMessage(text []byte) (http.Header, []piece, error) {
	h := http.Header{}
	for {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			return nil, nil, errors.New("there is no empty line after the headers")
		}
		text = rest
		if len(line) == 0 {
			break
		}
		name, value, ok := strings.Cut(string(line), ": ")
		if !ok {
			return nil, nil, fmt.Errorf("a header is malformed: %q", line)
		}
		h.Add(name, value)
	}
	switch h.Get(headerBody) {
	case bodyBase64:
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, nil, err
		}
		text = decoded
	case bodyNoNewline:
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	h.Del(headerBody)
	if isEventStream(h) {
		return h, splitEvents(text), nil
	}
	p := piece{data: text}
	if value := h.Get(headerWait); value != "" {
		wait, err := time.ParseDuration(value)
		if err != nil {
			return nil, nil, err
		}
		p.wait = wait
		h.Del(headerWait)
	}
	return h, []piece{p}, nil
}

var waitComment = regexp.MustCompile(`^: \+([0-9a-zµ.]+)\n`)

// splitEvents splits the body of a stream into its events, with the waits in its comments.
func splitEvents(text []byte) []piece {
	var pieces []piece
	for len(text) > 0 {
		var p piece
		if m := waitComment.FindSubmatch(text); m != nil {
			if wait, err := time.ParseDuration(string(m[1])); err == nil {
				p.wait, text = wait, text[len(m[0]):]
			}
		}
		n := len(text)
		if i := bytes.Index(text, []byte("\n\n")); i >= 0 {
			n = i + 2
		}
		p.data, text = text[:n], text[n:]
		pieces = append(pieces, p)
	}
	return pieces
}

// requestHeaders and replyHeaders are the headers that a cassette keeps. All others may tell
// who has recorded it.
var (
	requestHeaders = []string{"Content-Type", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta"}
	replyHeaders   = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "X-Request-Id", "Request-Id"}
	replyPrefixes  = []string{"X-Ratelimit-", "Anthropic-Ratelimit-"}
)

// keepHeaders returns the headers with the given names and beginnings of names.
func keepHeaders(h http.Header, names []string, prefixes ...string) http.Header {
	kept := http.Header{}
	for name, values := range h {
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.Contains(names, name) || slices.ContainsFunc(prefixes, hasPrefix) {
			kept[name] = slices.Clone(values)
		}
	}
	return kept
}
