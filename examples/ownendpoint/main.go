// Ownendpoint serves POST /v1/classify, which tells what a text is about, beside the endpoints of llmhttp,
// with their keys, limits, prices and records. Run it by: go run ./examples/ownendpoint
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
)

// A Classifier is a Backend that tells what texts are about.
type Classifier interface {
	// Classify returns a score from 0 to 1 for each label.
	Classify(ctx context.Context, req Request) (*Response, error)
}

// A Request is the body of POST /v1/classify.
type Request struct {
	Model  string   `json:"model"`
	Text   string   `json:"text"`
	Labels []string `json:"labels"`
	User   string   `json:"user"`
}

// A Response is the reply to a [Request].
type Response struct {
	Scores map[string]float64 `json:"scores"`
	Usage  *llm.Usage         `json:"usage"`
}

var endpoint = &llmhttp.Endpoint{
	Operation: "classify", Scope: "classify", Supported: llmhttp.Has[Classifier],
}

// classify serves a request.
func classify(c *llmhttp.Call) error {
	var req Request
	if err := c.Body(func(body []byte) error { return llmhttp.DecodeJSON(c.Context(), body, &req) }); err != nil {
		return err
	}
	if req.Text == "" || len(req.Labels) == 0 {
		return llm.Errorf(http.StatusBadRequest, "missing_required_parameter", "'text' and 'labels' must not be empty.")
	}
	err := c.Reserve(llmhttp.Estimate{Model: req.Model, User: req.User, Params: llmhttp.RequestParams{Messages: 1},
		Tokens: func() int { return c.CountText(req.Text + strings.Join(req.Labels, " ")) }})
	if err != nil {
		return err
	}
	var reply Response
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		classifier, _ := llmhttp.As[Classifier](ctx, b)
		resp, err := classifier.Classify(ctx, req)
		if err != nil {
			return llmhttp.Used{}, err
		} else if resp == nil || len(resp.Scores) == 0 {
			return llmhttp.Used{}, errors.New("there are no scores")
		}
		reply = *resp
		return llmhttp.Used{Usage: resp.Usage, Size: 50 * len(resp.Scores)}, nil
	})
	if err != nil {
		return err
	}
	return c.Reply("application/json", func(b []byte) ([]byte, error) {
		reply.Usage = new(c.Usage())
		return llmhttp.AppendJSON(b, &reply)
	})
}

// Words is a Backend that counts how often a text has a label.
type Words struct{ llmhttp.Backend }

// Classify implements [Classifier].
func (Words) Classify(_ context.Context, req Request) (*Response, error) {
	words := strings.Fields(strings.ToLower(req.Text))
	resp := &Response{Scores: make(map[string]float64), Usage: &llm.Usage{PromptTokens: len(words)}}
	for _, label := range req.Labels {
		n := 0
		for _, w := range words {
			if strings.Trim(w, ".,!?") == strings.ToLower(label) {
				n++
			}
		}
		resp.Scores[label] = float64(n) / float64(max(len(words), 1))
	}
	return resp, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	h := llmhttp.NewHandler(Words{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Usage: memory.NewUsageStore(), Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/classify", endpoint, classify)},
	})
	fmt.Printf("Try:\n  curl http://%s/v1/classify -H 'Authorization: Bearer sk-demo' -H 'Content-Type: application/json' -d '%s'\n",
		l.Addr(), `{"model": "words", "text": "Rain, rain, go away!", "labels": ["rain", "sun"]}`)
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	if err := llmhttp.Serve(ctx, server, h, nil, l); err != nil {
		log.Fatal(err)
	}
}
