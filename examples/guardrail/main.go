// Guardrail refuses requests and replies. A request with a forbidden text gets an error and does
// not reach the model. A reply ends in mid-stream where the model says something forbidden, as if
// the model's own filter had ended it: with content_filter, refusal or incomplete, as the format of
// the client has it. A tool call is checked as a whole before the client sees anything of it.
//
//	go run ./examples/guardrail
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/textfilter"
)

// guard returns a Backend that refuses the forbidden texts of requests to b and of its replies.
func guard(b llmhttp.Backend) llmhttp.Backend {
	return textfilter.New(b, func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: checkRequest, Reply: checkReply}
	})
}

// forbidden is what neither a client nor the model may say. It stands for any check that needs a
// whole sentence, such as a call of a model for moderation.
var forbidden = regexp.MustCompile(`(?i)\bbuild\s+a\s+bomb\b`)

// checkRequest refuses a request with an error that tells the client why.
func checkRequest(_ textfilter.Kind, text string) (string, error) {
	if forbidden.MatchString(text) {
		return "", llm.Errorf(http.StatusBadRequest, "content_filter", "Your request is against our rules.")
	}
	return text, nil
}

// checkReply releases whole sentences that are not forbidden, and whole calls of tools that are
// allowed.
func checkReply(t *textfilter.ReplyText) (release, hold string, err error) {
	end := len(t.Text)
	switch {
	case t.End:
	case t.Call >= 0:
		end = 0
	case !t.Paused:
		end = strings.LastIndexAny(t.Text, ".!?") + 1
	}
	text := t.Text[:end]
	if forbidden.MatchString(text) || t.Kind == textfilter.Arguments && t.End && !isAllowed(t.Tool, text) {
		return "", "", fmt.Errorf("choice %d: %w", t.Choice, textfilter.ErrContentFiltered)
	}
	return text, t.Text[end:], nil
}

// isAllowed reports whether the model may call a tool with arguments.
func isAllowed(tool, arguments string) bool {
	var shell struct{ Command string }
	if tool != "shell" {
		return true
	}
	return json.Unmarshal([]byte(arguments), &shell) == nil && !strings.Contains(shell.Command, "rm -rf")
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := newHandler(guard(memory.Echo()))
	server := &http.Server{
		Addr:              *addr,
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute,
	}
	log.Printf("listening on http://%s", *addr)
	if err := llmhttp.Serve(ctx, server, h, nil); err != nil {
		log.Fatal(err)
	}
}

// newHandler returns a Handler with all formats, for programs on this machine.
func newHandler(b llmhttp.Backend) *llmhttp.Handler {
	return llmhttp.NewHandler(b, llmhttp.AllowAll("demo"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
	})
}
