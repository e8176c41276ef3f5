// Redaction serves a model that never sees an e-mail address: it gets a placeholder for each one,
// in all texts of a request, and clients get the addresses back where the model uses a placeholder.
// A secret of the operator, which the model may know, does not leave in any text of a reply.
//
//	go run ./examples/redaction
//	go run ./examples/redaction -upstream https://models.example.com/v1 -secret swordfish
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/textfilter"
	"github.com/llmhttp/llmhttp/upstream"
)

// redact returns a Backend that hides e-mail addresses from b, and secrets from clients. It filters
// every operation that has texts, not only chats.
func redact(b llmhttp.Backend, secrets ...string) llmhttp.Backend {
	return textfilter.New(b, func(context.Context) textfilter.Filter {
		a := &addresses{secrets: secrets}
		return textfilter.Filter{Request: a.hide, Reply: a.restore}
	})
}

// addresses are the e-mail addresses of one request. Its methods are called one after the other.
type addresses struct {
	secrets []string
	found   []string
	out     *replacer.Replacer // made for the first text of the reply
}

var address = regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)+`)

// hide replaces each address by a placeholder, the same one by the same.
func (a *addresses) hide(kind textfilter.Kind, text string) (string, error) {
	if kind == textfilter.Arguments { // a client may have escaped the @
		plain, rest := replacer.Unescape(text)
		text = plain + rest
	}
	return address.ReplaceAllStringFunc(text, func(s string) string {
		for i, other := range a.found {
			if s == other {
				return placeholder(i)
			}
		}
		a.found = append(a.found, s)
		return placeholder(len(a.found) - 1)
	}), nil
}

func placeholder(i int) string { return fmt.Sprintf("[address-%d]", i+1) }

// restore replaces placeholders by the addresses, and secrets by a mark.
func (a *addresses) restore(t *textfilter.ReplyText) (release, hold string, err error) {
	if a.out == nil {
		var pairs []string
		for i, s := range a.found {
			pairs = append(pairs, placeholder(i), s)
		}
		for _, s := range a.secrets {
			pairs = append(pairs, s, "[redacted]")
		}
		a.out = replacer.New(pairs...)
	}
	return a.out.Reply(t)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	base := flag.String("upstream", "", "base `URL` of a server with models; its key is in LLMHTTP_KEY (default: an echo)")
	secret := flag.String("secret", "swordfish", "`text` that does not leave")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var model llmhttp.Backend = memory.Echo()
	if *base != "" {
		var err error
		if model, err = upstream.New(*base, &upstream.Options{Key: os.Getenv("LLMHTTP_KEY")}); err != nil {
			log.Fatal(err)
		}
	}
	h := newHandler(redact(model, *secret))
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
		Routes:    all.Routes(nil),
	})
}
