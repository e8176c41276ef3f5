// Custom serves its own Backend, a calculator that streams the value of each line of the question.
// It has its own KeyStore, and it records usage in the background.
//
//	go run ./examples/custom
package main

import (
	"context"
	"flag"
	"fmt"
	"go/token"
	"go/types"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A calculator is a Backend. It evaluates each line of the last message, one line per pace.
type calculator struct{ pace time.Duration }

const model = "calculator"

// Chat implements [llmhttp.Backend].
func (c calculator) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	if req.Model != model {
		return llm.Fail(llm.ModelNotFound(req.Model))
	}
	if req.Choices() > 1 {
		return llm.Fail(&llm.Error{Status: http.StatusBadRequest, Code: "unsupported_value", Param: "n",
			Message: "There is one answer to each sum."})
	}
	question := req.Messages[len(req.Messages)-1].Content.Text()
	return func(yield func(*llm.ChatChunk, error) bool) {
		usage := &llm.Usage{PromptTokens: strings.Count(question, "\n") + 1}
		for line := range strings.Lines(question) {
			select {
			case <-time.After(c.pace):
			case <-ctx.Done(): // the client disconnected or the server shuts down
				return
			}
			line = strings.TrimSpace(line)
			v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, line)
			if err != nil || v.Value == nil {
				// Before the first chunk, the client gets an error reply with this
				// status; after it, an error event. Only the log has e.Err.
				e := llm.Errorf(http.StatusBadRequest, "not_a_sum", "This is not a sum: %.40q", line)
				e.Err = err
				yield(nil, e)
				return
			}
			usage.CompletionTokens++
			if !yield(llm.TextChunk(fmt.Sprintf("%s = %s\n", line, v.Value)), nil) {
				return
			}
		}
		yield(&llm.ChatChunk{Usage: usage}, nil)
	}
}

// ListModels implements [llmhttp.ModelLister], an optional interface.
func (c calculator) ListModels(context.Context) ([]llm.Model, error) {
	return []llm.Model{{ID: model, Created: 1767225600, OwnedBy: "examples"}}, nil
}

// A keyring is a KeyStore. It maps the hash of each secret to its key.
type keyring map[string]*llmhttp.Key

// Lookup implements [llmhttp.KeyStore].
func (k keyring) Lookup(_ context.Context, secret string) (*llmhttp.Key, error) {
	if key := k[llmhttp.HashSecret(secret)]; key != nil {
		return key, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	pace := flag.Duration("pace", 300*time.Millisecond, "`time` to spend on each line")
	flag.Parse()
	if err := run(ctx, *addr, *pace, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. It writes instructions to out.
func run(ctx context.Context, addr string, pace time.Duration, out io.Writer) error {
	alice, bob := llmhttp.NewSecret("sk-"), llmhttp.NewSecret("sk-")
	keys := keyring{
		llmhttp.HashSecret(alice): {ID: "alice", Account: "school"},
		llmhttp.HashSecret(bob):   {ID: "bob", Account: "school", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(3)}},
	}
	// A production host would use a database here.
	usage := usagebuffer.New(memory.NewUsageStore(), nil)
	h := llmhttp.NewHandler(calculator{pace}, keys, &llmhttp.Options{Usage: usage})

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	fmt.Fprintf(out, welcome, l.Addr(), alice, bob)
	return llmhttp.Serve(ctx, server, h, nil, l)
}

const welcome = `listening on http://%[1]s
alice's key: %[2]s
bob's key, limited to 3 requests a minute: %[3]s

Try:
  curl -N http://%[1]s/v1/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "calculator", "stream": true, "messages": [{"role": "user", "content": "6 * 7\n1 << 10\n22 / 7.0"}]}'
  curl -w '\n' http://%[1]s/v1/chat/completions -H 'Authorization: Bearer %[3]s' -H 'Content-Type: application/json' -d '{"model": "calculator", "messages": [{"role": "user", "content": "2 + 2"}]}'
  curl -w '\n' http://%[1]s/v1/dashboard/billing/usage -H 'Authorization: Bearer %[2]s'
`
