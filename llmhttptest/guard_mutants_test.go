package llmhttptest

import (
	"context"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/textfilter"
)

// A chatGuard refuses chats about secrets and hides everything else.
type chatGuard struct{ llmhttp.Backend }

func (g chatGuard) Chat(ctx context.Context, req *chatReq) stream {
	for _, m := range req.Messages {
		if strings.Contains(m.Content.Text(), "secret") {
			return llm.Fail(llm.Errorf(400, "content_filter", "No."))
		}
	}
	return g.Backend.Chat(ctx, req)
}

// A leakyGuard is a chatGuard that lets the rest pass.
type leakyGuard struct{ chatGuard }

func (g leakyGuard) Unwrap(context.Context) llmhttp.Backend { return g.Backend }

// A queryGuard is a chatGuard that looks at the query of a request to rank documents only.
type queryGuard struct{ chatGuard }

func (g queryGuard) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	if strings.Contains(req.Query, "secret") {
		return nil, llm.Errorf(400, "content_filter", "No.")
	}
	return ability.Call(rerank.Reranker.Rerank)(ctx, g.Backend, req)
}

// filterAll is a guard that has every method.
func filterAll(b llmhttp.Backend) llmhttp.Backend {
	return textfilter.New(b, func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: func(_ textfilter.Kind, text string) (string, error) {
			return strings.ReplaceAll(text, "secret", "[removed]"), nil
		}}
	})
}

func guardFixture(wrap func(b llmhttp.Backend) llmhttp.Backend) func(testing.TB) guard {
	return func(testing.TB) guard { return guard{wrap, "a secret"} }
}

func TestGuardMutants(t *testing.T) {
	mutants := []mutant[guard]{
		{"nothing is checked", "Chat", guardFixture(func(b llmhttp.Backend) llmhttp.Backend { return b })},
		{"only the query is checked", "RerankDocuments", guardFixture(func(b llmhttp.Backend) llmhttp.Backend { return queryGuard{chatGuard{b}} })},
	}
	for _, c := range guardChecks[1:] {
		leaky := guardFixture(func(b llmhttp.Backend) llmhttp.Backend { return leakyGuard{chatGuard{b}} })
		mutants = append(mutants, mutant[guard]{"the guard has an Unwrap", c.name, leaky})
	}
	testMutants(t, nil, guardChecks, guardFixture(filterAll), mutants)
}

func TestGuard_AcceptsCorrectGuards(t *testing.T) {
	for name, wrap := range map[string]func(b llmhttp.Backend) llmhttp.Backend{
		"hides all but chats": func(b llmhttp.Backend) llmhttp.Backend { return chatGuard{b} },
		"filters all":         filterAll,
		"behind a Swap":       func(b llmhttp.Backend) llmhttp.Backend { return llmhttp.NewSwappableBackend(chatGuard{b}) },
		"in front of one":     func(b llmhttp.Backend) llmhttp.Backend { return chatGuard{llmhttp.NewSwappableBackend(b)} },
		"passes what is safe": func(b llmhttp.Backend) llmhttp.Backend { return passing{filterAll(passing{b})} },
	} {
		t.Run(name, func(t *testing.T) { TestGuard(t, wrap, "a secret") })
	}
}
