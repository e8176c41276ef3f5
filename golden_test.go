package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
)

var update = flag.Bool("update", false, "write what was replied to testdata/golden")

// TestGolden replays the conversations in testdata/golden. Each is a txtar
// archive of these files:
//
//	options     lines such as "requests 1" that set up the Handler, see goldenOptions
//	models      a JSON array, images and embeddings a JSON old_object: what the Backend answers
//	chat        what the Backend does when asked to chat, a step a line: a chunk in
//	            JSON, "sleep 20s", "error 400 code text", "fail text" or "panic text"
//	request     a request, without its Content-Length
//	response    exactly what is replied to it
//
// There may be several chats, requests and responses: a chat is for the requests
// that follow it. Lines of the heads end in CRLF on the wire. Of chunked bodies
// the chunks are joined, since where they are cut is not of the format, and the
// line "(end)" or "(cut)" tells whether the body was ended or the connection
// cut. Random ids are shown as 0s. The bodies that HTTP/2 brings are the same.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			comment, files := parseArchive(data)
			var got []archiveFile
			synctest.Test(t, func(t *testing.T) { got = replay(t, files) })
			if *update {
				if err := os.WriteFile(name, formatArchive(comment, got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			for i, f := range got {
				if f.data != files[i].data {
					t.Errorf("%s, file %d: got\n%s\nwant\n%s", f.name, i, f.data, files[i].data)
				}
			}
		})
	}
}

// replay returns files with the responses that were got. It fails t if HTTP/2
// brings another body.
func replay(t *testing.T, files []archiveFile) []archiveFile {
	var b goldenBackend
	opts := &llmhttp.Options{Logger: old_noLog, Usage: new(keptUsage), Now: func() time.Time { return time.Unix(1700000000, 0).UTC() }}
	key := &llmhttp.Key{ID: "key_1", Account: "acme"}
	requests := 0
	opts.RequestID = func(*http.Request) string { requests++; return fmt.Sprintf("req_%d", requests) }
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != "sk-demo" {
			return nil, llmhttp.ErrKeyNotFound
		}
		return key, nil
	})
	twin := &goldenBackend{}
	var s, s2 *pipeServer
	got := slices.Clone(files)
	last := ""
	for i, f := range files {
		switch f.name {
		case "options":
			goldenOptions(t, f.data, opts, key)
		case "request":
			if s == nil {
				s = newPipeServer(t, llmhttp.NewHandler(&b, keys, opts))
				o := *opts
				n := 0
				o.Usage, o.Limiter = new(keptUsage), llmhttp.NewLimiter()
				o.RequestID = func(*http.Request) string { n++; return fmt.Sprintf("req_%d", n) }
				s2 = newPipeServer(t, llmhttp.NewHandler(twin, keys, &o))
			}
			last = f.data
		case "response":
			if last == "" {
				t.Fatal("a response without a request")
			}
			raw, status, body := exchangeHTTP1(t, s, last)
			got[i].data = raw
			status2, body2 := exchangeHTTP2(t, s2, last)
			if status2 != status || body2 != body {
				t.Errorf("HTTP/1.1 %d\n%s\nHTTP/2 %d\n%s", status, body, status2, body2)
			}
			last = ""
		default:
			b.set(t, f)
			twin.set(t, f)
		}
	}
	return got
}

func goldenOptions(t *testing.T, lines string, o *llmhttp.Options, key *llmhttp.Key) {
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "requests":
			key.Limits.Requests = llmhttp.PerMinute(n)
		case "tokens":
			key.Limits.Tokens = llmhttp.PerMinute(n)
		case "quota":
			key.Limits.Quota = llmhttp.Rate{N: n, Per: 30 * 24 * time.Hour}
		case "models":
			key.Models = strings.Fields(value)
		case "scopes":
			for _, s := range strings.Fields(value) {
				key.Scopes = append(key.Scopes, llmhttp.Endpoint(s))
			}
		case "keepalive":
			o.KeepAlive = d
		case "timeout":
			o.Timeout = d
		case "price": // in dollars, of a thousand tokens
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			o.Cost = func(s llmhttp.UsageSum) float64 { return f * float64(s.PromptTokens+s.CompletionTokens) / 1000 }
		default:
			t.Fatalf("option %q", line)
		}
	}
}

// A goldenBackend does what files of a conversation say.
type goldenBackend struct {
	steps      []string
	models     []llmhttp.Model
	images     *llmhttp.ImageResponse
	embeddings *llmhttp.EmbeddingResponse
}

func (b *goldenBackend) set(t *testing.T, f archiveFile) {
	var err error
	switch f.name {
	case "chat":
		b.steps = strings.Split(strings.TrimSpace(f.data), "\n")
		for _, s := range b.steps {
			if strings.HasPrefix(s, "{") {
				parseChunk(t, s)
			}
		}
	case "models":
		b.models = nil
		err = json.Unmarshal([]byte(f.data), &b.models)
	case "images":
		b.images = nil
		err = json.Unmarshal([]byte(f.data), &b.images)
	case "embeddings":
		b.embeddings = nil
		err = json.Unmarshal([]byte(f.data), &b.embeddings)
	default:
		t.Fatalf("file %q", f.name)
	}
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
}

func (b *goldenBackend) Chat(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for _, step := range b.steps {
			verb, rest, _ := strings.Cut(step, " ")
			switch verb {
			case "sleep":
				d, _ := time.ParseDuration(rest)
				select {
				case <-time.After(d):
				case <-ctx.Done():
					return
				}
			case "error":
				status, rest, _ := strings.Cut(rest, " ")
				code, text, _ := strings.Cut(rest, " ")
				n, _ := strconv.Atoi(status)
				yield(nil, llmhttp.Errorf(n, code, "%s", text))
				return
			case "fail":
				yield(nil, fmt.Errorf("fail: %s", rest))
				return
			case "panic":
				panic(rest)
			default:
				c := new(llmhttp.ChatChunk)
				if err := json.Unmarshal([]byte(step), c); err != nil {
					panic(err)
				}
				if !yield(c, nil) {
					return
				}
			}
		}
	}
}

func (b *goldenBackend) ListModels(context.Context) ([]llmhttp.Model, error) { return b.models, nil }

func (b *goldenBackend) GenerateImages(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	return b.images, nil
}

func (b *goldenBackend) Embed(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	return b.embeddings, nil
}

// wireRequest returns the bytes of a request of a conversation.
func wireRequest(request string) (wire []byte, hasBody bool) {
	head, body, _ := strings.Cut(request, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	head = strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\r\n") + "\r\n"
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return []byte(head + "\r\n" + body), body != ""
}

// exchangeHTTP1 sends a request as it is and returns the response as it is
// shown in a conversation, its status and its body.
func exchangeHTTP1(t *testing.T, s *pipeServer, request string) (shown string, status int, body string) {
	c, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wire, _ := wireRequest(request)
	go c.Write(wire)
	// Everything is read first, as it comes: a parser would tidy it up.
	var raw bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &raw))
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		t.Fatalf("%v in %q", err, raw.String())
	}
	read, bodyErr := io.ReadAll(resp.Body)
	c.Close()
	head, rest, ok := strings.Cut(raw.String(), "\r\n\r\n")
	if !ok || strings.Contains(strings.ReplaceAll(head, "\r\n", ""), "\n") {
		t.Fatalf("head %q", head)
	}
	body = old_hideIDs(string(read))
	shown = old_hideIDs(strings.ReplaceAll(head, "\r\n", "\n")) + "\n\n" + body
	switch {
	case resp.ContentLength >= 0:
		if bodyErr != nil || rest != string(read) {
			t.Fatalf("%v: body %q", bodyErr, rest)
		}
		if body != "" {
			shown += "\n"
		}
	case bodyErr != nil:
		shown += "(cut)\n"
		body += "(cut)"
	case !strings.HasSuffix(rest, "\r\n0\r\n\r\n"):
		t.Fatalf("the chunked body ends with %q", rest[max(0, len(rest)-20):])
	default:
		shown += "(end)\n"
		body += "(end)"
	}
	return shown, resp.StatusCode, body
}

func exchangeHTTP2(t *testing.T, s *pipeServer, request string) (status int, body string) {
	wire, hasBody := wireRequest(request)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(r.Method, "http://"+r.Host+r.RequestURI, nil)
	if err != nil {
		t.Fatal(err)
	}
	if hasBody {
		req.Body, req.ContentLength = r.Body, r.ContentLength
	}
	maps.Copy(req.Header, r.Header)
	resp, err := s.client(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatalf("proto %s", resp.Proto)
	}
	read, err := io.ReadAll(resp.Body)
	body = old_hideIDs(string(read))
	switch {
	case err != nil:
		body += "(cut)"
	case resp.Header.Get("Content-Length") == "":
		body += "(end)"
	}
	return resp.StatusCode, body
}

func old_hideIDs(s string) string {
	return madeID.ReplaceAllString(s, "${1}00000000000000000000000000000000")
}
