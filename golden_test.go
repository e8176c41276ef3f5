package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/responses"
)

var update = flag.Bool("update", false, "write the replies to testdata/golden")

// TestGolden replays the conversations in testdata/golden. Each is an archive in the
// txtar format with these files:
//
//	options     lines that set up the Handler and the key; see newConversation
//	models      what ListModels returns, as a JSON array
//	images      what GenerateImages and EditImages return, as a JSON object
//	embeddings  what Embed returns, as a JSON object
//	rerank      what Rerank returns, as a JSON object
//	moderations  what Moderate returns, as a JSON object
//	drawing     what StreamImages and StreamImageEdits do, in the steps of chat: a reply with one image, which is partial if the reply has that member
//	transcription  what Transcribe does, in the steps of chat
//	speech      what Speak does, in the steps of chat: a chunk has its audio as text, and a usage
//	chat        what Chat does, one step a line: a chunk in JSON, "sleep 20s",
//	            "error 400 code text", "fail text" or "panic text"
//	completion  what Complete does, in the steps of chat
//	request     a request without its Content-Length
//	response    the reply to the request before it
//
// A file that configures the Backend applies to all requests that follow it. Lines of
// heads end in CRLF on the wire. The chunks of a chunked body are joined, and the line
// "(end)" or "(cut)" tells whether the body ended or the connection was cut. Random IDs
// are shown as zeros. Each request is also sent over HTTP/2, to another Handler: the
// status and the body must be the same.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/golden/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			comment, files := parseArchive(string(data))
			var got []archiveFile
			synctest.Test(t, func(t *testing.T) { got = replay(t, files) })
			if *update {
				require.NoError(t, os.WriteFile(name, formatArchive(comment, got), 0o666))
				return
			}
			for i := range got {
				assert.Equal(t, files[i].data, got[i].data, "%s, file %d", got[i].name, i)
			}
		})
	}
}

// replay returns files with the responses of the Handler.
func replay(t *testing.T, files []archiveFile) []archiveFile {
	var options string
	if files[0].name == "options" {
		options = files[0].data
	}
	http1, http2 := newConversation(t, options, false), newConversation(t, options, true)
	got := append([]archiveFile(nil), files...)
	request := ""
	for i, f := range files {
		switch f.name {
		case "options":
			require.Zero(t, i, "options must come first")
		case "request":
			request = f.data
		case "response":
			require.NotEmpty(t, request, "a response without a request")
			synctest.Wait() // until the usage of failed requests is recorded, which is after their replies
			head, status, body := http1.sendRaw(request)
			got[i].data = head + "\n\n" + body
			status2, body2 := http2.send(request)
			assert.Equal(t, status, status2, "HTTP/2")
			assert.Equal(t, body, body2, "HTTP/2")
			request = ""
		default:
			http1.backend.set(t, f)
			http2.backend.set(t, f)
		}
	}
	return got
}

// A conversation is a server, and the Backend of its Handler.
type conversation struct {
	*testServer
	backend *goldenBackend
}

func newConversation(t *testing.T, options string, http2 bool) *conversation {
	requests := 0
	opts := llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil)},
		Usage:     memory.NewUsageStore(),
		Now:       func() time.Time { return time.Unix(1700000000, 0).UTC() },
		RequestID: func(*http.Request) string { requests++; return fmt.Sprintf("req_%d", requests) },
	}
	key := testKey()
	for line := range strings.Lines(options) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "requests":
			key.Limits.Requests = llmhttp.PerMinute(n)
		case "tokens":
			key.Limits.Tokens = llmhttp.PerMinute(n)
		case "quota":
			key.Limits.Quota = llmhttp.Quota{Tokens: n}
		case "models":
			key.Models = strings.Fields(value)
		case "responses": // the API, with a store
			opts.Protocols = append(opts.Protocols, responses.New(&responses.Options{Store: memory.NewResponseStore()}))
		case "scopes":
			for _, s := range strings.Fields(value) {
				key.Scopes = append(key.Scopes, llmhttp.Scope(s))
			}
		case "keepalive":
			opts.Bounds.KeepAlive = d
		case "timeout":
			opts.Bounds.Timeout = d
		case "price": // of a thousand tokens, in US dollars
			price, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			thousand := llm.Money(math.Round(price * float64(llm.MoneyUnit)))
			opts.Price = func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				return llmhttp.Cost{Output: thousand.Scale(r.Units.Tokens(), 1000)}, nil
			}
		default:
			require.Fail(t, "unknown option", "%q", line)
		}
	}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != "sk-demo" {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &key, nil
	})
	b := new(goldenBackend)
	return &conversation{startPipeServer(t, config{backend: b, keys: keys, opts: opts, http2: http2}), b}
}

// A goldenBackend behaves as the files of a conversation specify.
type goldenBackend struct {
	steps      []string
	models     []llm.Model
	images     *llm.ImageResponse
	embeddings *llm.EmbeddingResponse
	rerank     *rerank.Response
	moderation *moderation.Response
}

func (b *goldenBackend) set(t *testing.T, f archiveFile) {
	var err error
	switch f.name {
	case "chat", "completion", "speech", "transcription", "drawing":
		b.steps = strings.Split(strings.TrimSpace(f.data), "\n")
		for _, s := range b.steps {
			if (f.name == "chat" || f.name == "completion") && strings.HasPrefix(s, "{") {
				parseChunks(t, s)
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
	case "rerank":
		b.rerank = nil
		err = json.Unmarshal([]byte(f.data), &b.rerank)
	case "moderations":
		b.moderation = nil
		err = json.Unmarshal([]byte(f.data), &b.moderation)
	default:
		require.Fail(t, "unknown file", "%q", f.name)
	}
	require.NoError(t, err, f.name)
}

func (b *goldenBackend) Chat(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
	return goldenStream[llm.ChatChunk](ctx, b.steps)
}

func (b *goldenBackend) EditImages(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
	return b.images, nil
}

func (b *goldenBackend) StreamImageEdits(ctx context.Context, r *imageedit.Request) llm.ImageStream {
	return b.StreamImages(ctx, &r.ImageRequest)
}

func (b *goldenBackend) Complete(ctx context.Context, _ *completion.Request) llm.ChatStream {
	return goldenStream[llm.ChatChunk](ctx, b.steps)
}

func (b *goldenBackend) StreamImages(ctx context.Context, _ *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		goldenStream[llm.ImageResponse](ctx, b.steps)(func(r *llm.ImageResponse, err error) bool {
			if r == nil {
				return yield(nil, err)
			}
			_, partial := r.Extra["partial"]
			return yield(&llm.ImageChunk{Image: &r.Data[0], Partial: partial, Usage: r.Usage}, err)
		})
	}
}

func (b *goldenBackend) Speak(ctx context.Context, _ *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		type chunk struct {
			Audio string
			Usage *llm.Usage
		}
		goldenStream[chunk](ctx, b.steps)(func(c *chunk, err error) bool {
			if c == nil {
				return yield(nil, err)
			}
			return yield(&audio.SpeechChunk{Audio: []byte(c.Audio), Usage: c.Usage}, err)
		})
	}
}

func (b *goldenBackend) Transcribe(ctx context.Context, _ *audio.TranscriptionRequest) audio.TranscriptionStream {
	return goldenStream[audio.TranscriptionChunk](ctx, b.steps)
}

// goldenStream returns a stream of chunks that does what steps say.
func goldenStream[Chunk any](ctx context.Context, steps []string) iter.Seq2[*Chunk, error] {
	return func(yield func(*Chunk, error) bool) {
		for _, step := range steps {
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
				var status int
				var code string
				fmt.Sscan(rest, &status, &code)
				_, text, _ := strings.Cut(rest, code+" ")
				yield(nil, llm.Errorf(status, code, "%s", text))
				return
			case "fail":
				yield(nil, errors.New(rest))
				return
			case "panic":
				panic(rest)
			default:
				c := new(Chunk)
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

func (b *goldenBackend) ListModels(context.Context) ([]llm.Model, error) { return b.models, nil }

func (b *goldenBackend) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	return b.images, nil
}

func (b *goldenBackend) Embed(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return b.embeddings, nil
}

func (b *goldenBackend) Rerank(context.Context, *rerank.Request) (*rerank.Response, error) {
	return b.rerank, nil
}

func (b *goldenBackend) Moderate(context.Context, *moderation.Request) (*moderation.Response, error) {
	return b.moderation, nil
}

// goldenRequest parses a request of a conversation, and returns the bytes it has on the wire.
func goldenRequest(t testing.TB, request string) (*http.Request, string) {
	head, body, _ := strings.Cut(request, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	wire := strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\r\n") + "\r\n"
	if body != "" {
		wire += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	wire += "\r\n" + body
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	require.NoError(t, err)
	return r, wire
}

// sendRaw sends the bytes of a request over HTTP/1.1. It does not parse the head of the
// reply, because that would normalize it.
func (c *conversation) sendRaw(request string) (head string, status int, body string) {
	t := c.t
	r, wire := goldenRequest(t, request)
	conn := c.dial()
	defer conn.Close()
	go io.WriteString(conn, wire)
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), r)
	require.NoError(t, err, "%q", raw.String())
	parsed := readReply(resp)
	head, rest, ok := strings.Cut(raw.String(), "\r\n\r\n")
	require.True(t, ok)
	assert.NotContains(t, strings.ReplaceAll(head, "\r\n", ""), "\n")
	if resp.ContentLength >= 0 {
		assert.Equal(t, parsed.body, rest)
	} else if parsed.err == nil {
		assert.True(t, strings.HasSuffix(rest, "\r\n0\r\n\r\n"), "%q", rest)
	}
	return hideIDs(strings.ReplaceAll(head, "\r\n", "\n")), resp.StatusCode, goldenBody(parsed)
}

// send sends a request over HTTP/2.
func (c *conversation) send(request string) (status int, body string) {
	t := c.t
	r, _ := goldenRequest(t, request)
	length := r.ContentLength
	resp, err := c.open(t.Context(), r.Method, r.RequestURI, "", func(req *http.Request) {
		req.Host, req.Header = r.Host, r.Header
		if length > 0 {
			req.Body, req.ContentLength = r.Body, length
		}
	})
	require.NoError(t, err)
	require.Equal(t, 2, resp.ProtoMajor)
	return resp.StatusCode, goldenBody(readReply(resp))
}

// goldenBody returns the body of a reply as conversations show it.
func goldenBody(r reply) string {
	body := hideIDs(r.body)
	switch {
	case r.err != nil:
		return body + "(cut)\n"
	case r.Header.Get("Content-Length") == "":
		return body + "(end)\n"
	case body == "":
		return ""
	}
	return body + "\n"
}

// An archiveFile is a file in a txtar archive.
type archiveFile struct{ name, data string }

// parseArchive parses a txtar archive: a comment, then files, each after a line
// "-- name --".
func parseArchive(text string) (comment string, files []archiveFile) {
	current := &comment
	for line := range strings.Lines(text) {
		name, isName := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if name, ok := strings.CutSuffix(name, " --"); ok && isName {
			files = append(files, archiveFile{name: name})
			current = &files[len(files)-1].data
			continue
		}
		*current += line
	}
	return comment, files
}

func formatArchive(comment string, files []archiveFile) []byte {
	b := []byte(comment)
	for _, f := range files {
		b = fmt.Appendf(b, "-- %s --\n%s", f.name, f.data)
		if f.data != "" && !strings.HasSuffix(f.data, "\n") {
			b = append(b, '\n')
		}
	}
	return b
}
