package llmfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

var update = flag.Bool("update", false, "write docs/llmfake-faults.md")

// faults are the rows of the table. Only those that are for streams have an effect there only.
var faults = []struct {
	name       string
	code       string // as it is in the table
	reply      llmfake.Reply
	streamOnly bool
	timeout    bool // the client gives up after a second
}{
	{"none", `Text("once upon a time")`, llmfake.Text("once upon a time"), false, false},
	{"bad-request", "Fail(400)", llmfake.Fail(400), false, false},
	{"unauthorized", "Fail(401)", llmfake.Fail(401), false, false},
	{"context-length", "ContextLengthExceeded(...)", llmfake.ContextLengthExceeded(10, 20), false, false},
	{"rate-limited", "RateLimited(time.Second)", llmfake.RateLimited(time.Second), false, false},
	{"server-error", "Fail(500)", llmfake.Fail(500), false, false},
	{"overloaded", "Overloaded()", llmfake.Overloaded(), false, false},
	{"html-502", "HTML(502)", llmfake.HTML(502), false, false},
	{"html-200", "HTML(200)", llmfake.HTML(200), false, false},
	{"hang", "Hang(), and a timeout of the client", llmfake.Hang(), false, true},
	{"cut-at-once", "Cut()", llmfake.Cut(), false, false},
	{"cut", "Text(...).Cut()", llmfake.Text("once upon").Cut(), false, false},
	{"break", "Text(...).Break(err)", llmfake.Text("once upon").Break(nil), false, false},
	{"malformed", "Text(...).Malformed()", llmfake.Text("once upon").Malformed(), false, false},
	{"pause", "Text(...).Hang(), and a timeout of the client", llmfake.Text("once upon").Hang(), true, true},
	{"no-end", "Text(...).NoEnd()", llmfake.Text("once upon").NoEnd(), true, false},
	{"bad-tool-indices", "Call(...).Call(...).BadToolIndices()",
		llmfake.Call("first", map[string]int{"a": 1}).Call("second", map[string]int{"b": 2}).BadToolIndices(), true, false},
	{"length", "Text(...).Finish(FinishLength)", llmfake.Text("once upon").Finish(llm.FinishLength), false, false},
}

// An outcome is what an SDK has made of a reply.
type outcome struct {
	Text  string `json:"text"`  // what the program has got
	Error string `json:"error"` // "" if there is none
}

// String returns the text of a cell. requests is how many requests the SDK has sent.
func (o outcome) cell(requests int) string {
	var parts []string
	if o.Text != "" {
		parts = append(parts, "`"+o.Text+"`")
	}
	if o.Error != "" {
		parts = append(parts, o.Error)
	}
	if len(parts) == 0 {
		parts = append(parts, "empty, no error")
	}
	s := strings.Join(parts, ", then ")
	if requests > 1 {
		s += fmt.Sprintf(" (%d requests)", requests)
	}
	return s
}

// sdks are the columns of Go. Each function sends a request for a model.
var sdks = []struct {
	name string
	ask  func(ctx context.Context, srv *llmfake.Server, stream bool) outcome
}{
	{"openai-go, chat", askOpenAI},
	{"openai-go, responses", askResponses},
	{"anthropic-sdk-go", askAnthropic},
}

// errorName describes an error in a word or a few.
func errorName(err error) string {
	var openAIError *openai.Error
	var anthropicError *anthropic.Error
	var netError net.Error
	var syntaxError *json.SyntaxError
	var urlError *url.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &openAIError):
		return fmt.Sprintf("openai.Error %d", openAIError.StatusCode)
	case errors.As(err, &anthropicError):
		return fmt.Sprintf("anthropic.Error %d", anthropicError.StatusCode)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "context.DeadlineExceeded"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "io.ErrUnexpectedEOF"
	case errors.As(err, &syntaxError):
		return "json.SyntaxError"
	case errors.As(err, &urlError):
		return "url.Error: " + urlError.Err.Error()
	}
	text := err.Error()
	if i := strings.IndexAny(text, "{\n<"); i > 0 {
		text = strings.TrimRight(text[:i], " :")
	}
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return "error: " + text
}

func askOpenAI(ctx context.Context, srv *llmfake.Server, stream bool) (o outcome) {
	client := newOpenAI(srv)
	var message openai.ChatCompletionMessage
	if stream {
		s := client.Chat.Completions.NewStreaming(ctx, chatParams("x", "Hi"))
		var acc openai.ChatCompletionAccumulator
		for s.Next() {
			acc.AddChunk(s.Current())
		}
		o.Error = errorName(s.Err())
		if len(acc.Choices) > 0 {
			message = acc.Choices[0].Message
		}
	} else {
		c, err := client.Chat.Completions.New(ctx, chatParams("x", "Hi"))
		o.Error = errorName(err)
		if err == nil && len(c.Choices) > 0 {
			message = c.Choices[0].Message
		}
	}
	o.Text = message.Content
	for _, call := range message.ToolCalls {
		o.Text += fmt.Sprintf("%s(%s) ", call.Function.Name, call.Function.Arguments)
	}
	o.Text = strings.TrimSpace(o.Text)
	return o
}

func askResponses(ctx context.Context, srv *llmfake.Server, stream bool) (o outcome) {
	client := newOpenAI(srv)
	p := responses.ResponseNewParams{Model: "x", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hi")}}
	if !stream {
		r, err := client.Responses.New(ctx, p)
		o.Error = errorName(err)
		if err == nil {
			o.Text = r.OutputText()
		}
		return o
	}
	s := client.Responses.NewStreaming(ctx, p)
	calls := map[int64]string{}
	for s.Next() {
		switch e := s.Current(); e.Type {
		case "response.output_text.delta":
			o.Text += e.Delta
		case "response.output_item.done":
			if e.Item.Type == "function_call" {
				call := e.Item.AsFunctionCall()
				calls[e.OutputIndex] = fmt.Sprintf("%s(%s)", call.Name, call.Arguments)
			}
		case "response.failed":
			o.Error = "event response.failed"
		}
	}
	for i := range int64(4) {
		o.Text = strings.TrimSpace(o.Text + " " + calls[i])
	}
	if s.Err() != nil {
		o.Error = errorName(s.Err())
	}
	return o
}

func askAnthropic(ctx context.Context, srv *llmfake.Server, stream bool) (o outcome) {
	client := newAnthropic(srv)
	var message anthropic.Message
	if stream {
		s := client.Messages.NewStreaming(ctx, messageParams("x", "Hi"))
		for s.Next() {
			if err := message.Accumulate(s.Current()); err != nil {
				o.Error = "Accumulate: " + errorName(err)
				break
			}
		}
		if s.Err() != nil {
			o.Error = errorName(s.Err())
		}
	} else if m, err := client.Messages.New(ctx, messageParams("x", "Hi")); err == nil {
		message = *m
	} else {
		o.Error = errorName(err)
	}
	for _, block := range message.Content {
		o.Text += block.Text
		if block.Type == "tool_use" {
			o.Text += fmt.Sprintf("%s(%s) ", block.Name, block.Input)
		}
	}
	o.Text = strings.TrimSpace(o.Text)
	return o
}

// A cell is what one SDK makes of one fault.
type cellID struct {
	fault  string
	stream bool
	sdk    string
}

// runGo fills the cells of the SDKs in Go.
func runGo(t *testing.T, cells map[cellID]string) (columns []string) {
	for _, sdk := range sdks {
		columns = append(columns, sdk.name)
		for _, f := range faults {
			for _, stream := range []bool{false, true} {
				if f.streamOnly && !stream {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					srv := llmfake.NewServer(t)
					srv.Always(f.reply)
					ctx := t.Context()
					if f.timeout {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Second)
						defer cancel()
					}
					o := sdk.ask(ctx, srv, stream)
					cells[cellID{f.name, stream, sdk.name}] = o.cell(len(srv.Requests()))
				})
			}
		}
	}
	return columns
}

// runNode fills the cells of the SDKs in Node.js, which a script runs all at once. The names of
// the models tell the fault, the SDK and whether it is a stream.
func runNode(t *testing.T, cells map[cellID]string) (columns []string) {
	tier.Needs(t, "Node.js")
	srv := llmfake.NewServer(t)
	type fault struct {
		Name       string `json:"name"`
		Timeout    bool   `json:"timeout"`
		StreamOnly bool   `json:"streamOnly"`
	}
	var list []fault
	for _, f := range faults {
		srv.When(llmfake.Model(f.name + "/*")).Always(f.reply)
		list = append(list, fault{f.name, f.timeout, f.streamOnly})
	}
	input, err := json.Marshal(list)
	require.NoError(t, err)
	dir := filepath.Join("..", "..", "node")
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "node"), "llmfake/faults.js")
	cmd.Dir, cmd.Stdin, cmd.Env = dir, bytes.NewReader(input), append(os.Environ(), srv.Env()...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s; are the packages of clients/node installed? See scripts/setup.sh", &stderr)
	var results []struct {
		Fault  string `json:"fault"`
		SDK    string `json:"sdk"`
		Stream bool   `json:"stream"`
		outcome
	}
	require.NoError(t, json.Unmarshal(out, &results), "%s", out)
	requests := map[string]int{}
	for _, r := range srv.Requests() {
		requests[r.Model]++
	}
	for _, r := range results {
		model := fmt.Sprintf("%s/%s/%t", r.Fault, r.SDK, r.Stream)
		assert.NotZero(t, requests[model], model)
		cells[cellID{r.Fault, r.Stream, r.SDK}] = r.cell(requests[model])
		if !slices.Contains(columns, r.SDK) {
			columns = append(columns, r.SDK)
		}
	}
	return columns
}

// TestFaults compares what the SDKs make of faults with docs/llmfake-faults.md. With -update it
// writes the document.
func TestFaults(t *testing.T) {
	cells := map[cellID]string{}
	columns := append(runGo(t, cells), runNode(t, cells)...)
	var b strings.Builder
	b.WriteString("# What SDKs make of faults\n\n" +
		"Each row is a reply of package [llmfake](../llmfake), and each column an SDK with its default retries. A cell has the text that a program\n" +
		"gets, then the error. `go test ./llmfake -run TestFaults -update` in clients/go writes this page, and without `-update` compares it. The\n" +
		"versions of the SDKs are in [clients](../clients/README.md).\n")
	for _, stream := range []bool{false, true} {
		if stream {
			b.WriteString("\n## Streams\n\nIn Go, and in Node.js where the SDK has an accumulator, the text is that of the accumulator.\n\n")
		} else {
			b.WriteString("\n## Whole replies\n\n")
		}
		b.WriteString("| Reply | " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
		for _, f := range faults {
			if f.streamOnly && !stream {
				continue
			}
			row := "| `" + f.code + "`"
			if code, more, ok := strings.Cut(f.code, ", "); ok && f.timeout {
				row = "| `" + code + "`, " + more
			}
			for _, column := range columns {
				row += " | " + strings.ReplaceAll(cells[cellID{f.name, stream, column}], "|", `\|`)
			}
			b.WriteString(row + " |\n")
		}
	}
	file := filepath.Join("..", "..", "..", "docs", "llmfake-faults.md")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "run: go test ./llmfake -run TestFaults -update")
}
