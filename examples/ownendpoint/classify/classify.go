// Package classify serves POST /v1/classify, which tells what a text is about: an endpoint of a host
// beside those of llmhttp, with their keys, limits, prices, records and streams.
package classify

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A Classifier is a Backend that tells what texts are about.
type Classifier interface {
	// Classify returns a Score for each label, in any order, and then at most one error.
	Classify(ctx context.Context, req *Request) iter.Seq2[*Score, error]
}

// A Request is the body of POST /v1/classify.
type Request struct {
	Model  string   `json:"model"`
	Text   string   `json:"text"`
	Labels []string `json:"labels"`
	User   string   `json:"user"`
	Stream bool     `json:"stream"` // an event for each score
}

// A Score tells how much a text has of a label.
type Score struct {
	Label string     `json:"label"`
	Score float64    `json:"score"` // from 0 to 1
	Usage *llm.Usage `json:"-"`     // of the request so far; nil if it is not known
}

// Routes returns the endpoint, for Options.Routes.
func Routes() []llmhttp.Route {
	e := &llmhttp.Endpoint{Operation: "classify", Scope: "classify", Supported: llmhttp.Has[Classifier]}
	return []llmhttp.Route{llmhttp.NewRoute("POST /v1/classify", e, serve)}
}

func serve(c *llmhttp.Call) error {
	var req Request
	if err := c.Body(func(body []byte) error { return llmhttp.DecodeJSON(c.Context(), body, &req) }); err != nil {
		return err
	}
	if req.Text == "" || len(req.Labels) == 0 {
		return llm.Errorf(http.StatusBadRequest, "missing_required_parameter", "'text' and 'labels' must not be empty.")
	}
	err := c.Reserve(llmhttp.Estimate{Model: req.Model, User: req.User, Stream: req.Stream,
		Tokens: func() int { return c.CountText(req.Text + strings.Join(req.Labels, " ")) }})
	if err != nil {
		return err
	}
	framing, before, after, end := llmhttp.EventStream(), "data: ", "\n\n", "data: {\"usage\":%s}\n\n"
	if !req.Stream {
		framing, before, after, end = llmhttp.Framing{ContentType: "application/json", Whole: true}, `{"scores":[`, "", `],"usage":%s}`
	}
	s := c.Stream(framing, func(b []byte, e *llm.Error) []byte {
		return fmt.Appendf(b, "data: {\"error\":{\"message\":%q}}\n\n", e.Message)
	})
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		classifier, _ := llmhttp.As[Classifier](ctx, b)
		return llmhttp.Used{}, llmhttp.AppendStream(s, classifier.Classify(ctx, &req), func(score *Score) llmhttp.Progress {
			return llmhttp.Progress{Usage: score.Usage, HasOutput: true, Size: len(score.Label) + 50}
		}, func(b []byte, score *Score) ([]byte, error) {
			b, err := llmhttp.AppendJSON(append(b, before...), score)
			if !req.Stream {
				before = ","
			}
			return append(b, after...), err
		})
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) {
		usage, err := llmhttp.AppendJSON(nil, c.Usage())
		return fmt.Appendf(b, end, usage), err
	})
}
