// Scripted serves a scripted model for tests of coding agents: the model calls one
// tool, and when it gets the result it answers with the result. Requests without
// the tool, such as those for a title, are answered with a text.
//
// It is listed as demo-chat, and for Claude Code also as claude-demo-chat. Codex gets its context window.
//
// With -recall the model thinks of a magic word and knows it later, but only from the conversation that it
// gets. It tells it in summaries.
//
// With -redacted the model begins each reply with signed and with redacted thinking,
// and refuses a conversation in which a reply of the assistant has lost them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	tool := flag.String("tool", "read", "`name` of the tool to call")
	arguments := flag.String("arguments", "{}", "`JSON` of its arguments")
	redacted := flag.Bool("redacted", false, "reply with redacted thinking instead of calls")
	recall := flag.Bool("recall", false, "reply about a magic word instead of calls")
	flag.Parse()
	backend := model(*tool, *arguments)
	switch {
	case *redacted:
		backend = thinker()
	case *recall:
		backend = recaller()
	}
	if err := run(*addr, backend); err != nil {
		log.Fatal(err)
	}
}

func run(addr string, backend llmhttp.Backend) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	keys := memory.NewKeyStore()
	keys.Add("sk-demo", &llmhttp.Key{ID: "demo"})
	h := llmhttp.NewHandler(lister{backend}, keys, &llmhttp.Options{
		Protocols: []llmhttp.Protocol{
			messages.New(&messages.Options{Names: messages.Names{"claude-demo-*": "demo-*", "claude-*": memory.ModelChat}}),
			responses.New(&responses.Options{Store: memory.NewResponseStore(), CodexInstructions: "You are a coding agent."}),
		},
	})
	server := &http.Server{Handler: logged(h), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("listening on http://%s\n", l.Addr())
	// An agent that was killed may have left a stream.
	return llmhttp.Serve(ctx, server, h, &llmhttp.ServeOptions{DrainTimeout: time.Second}, l)
}

// A lister lists the model.
type lister struct{ llmhttp.Backend }

func (lister) ListModels(context.Context) ([]llm.Model, error) {
	return []llm.Model{{
		ID: memory.ModelChat, DisplayName: "Demo chat", ContextWindow: 96_000, OutputLimit: 8000,
		Capabilities: []llm.Capability{llm.CapabilityTools},
	}}, nil
}

// logged prints a line for each request.
func logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

// model returns a Backend that calls the tool and then answers with its result.
func model(tool, arguments string) llmhttp.Backend {
	return &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		last := req.Messages[len(req.Messages)-1]
		isTool := func(t llm.Tool) bool { return t.Function != nil && t.Function.Name == tool }
		switch {
		case last.Role == llm.RoleTool:
			return []memory.Step{memory.Say("The tool returned: "), memory.Say(last.Content.Text())}
		case slices.ContainsFunc(req.Tools, isTool):
			return []memory.Step{
				memory.Reason("Let me see."),
				memory.Say("I use a tool."),
				memory.Call(llmhttp.NewSecret("call_")[:20], tool, arguments),
			}
		}
		return []memory.Step{memory.Say("A title")}
	}}
}

// recaller returns a Backend that thinks of a magic word when it is asked to. It knows the word from
// messages, and from a summary of its own, but not from what a user says.
func recaller() llmhttp.Backend {
	const told = "The magic word is xyzzy."
	return &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		knows := slices.ContainsFunc(req.Messages, func(m llm.Message) bool { return strings.Contains(m.Content.Text(), told) })
		switch last := req.Messages[len(req.Messages)-1].Content.Text(); {
		case last == "Think of a magic word.":
			return []memory.Step{memory.Say(told)}
		case !knows:
			return []memory.Step{memory.Say("I know no magic word.")}
		case last == responses.DefaultCompactPrompt:
			return []memory.Step{memory.Reason("Let me see."), memory.Say("A summary. "), memory.Say(told)}
		case last == "What is the magic word?":
			return []memory.Step{memory.Say("It is xyzzy.")}
		}
		return []memory.Step{memory.Say("Well.")}
	}}
}

// The reasoning of a thinker.
const (
	thinkerText      = "Let me see."
	thinkerSignature = "signature of the text"
	thinkerRedacted  = "redacted data"
)

// thinker returns a Backend that replies with redacted thinking.
func thinker() llmhttp.Backend {
	return &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		for i := range req.Messages {
			if m := &req.Messages[i]; m.Role == llm.RoleAssistant && !isThinkers(m) {
				return []memory.Step{memory.Fail(llm.Errorf(http.StatusBadRequest, "", "The thinking of a reply was lost."))}
			}
		}
		return []memory.Step{
			memory.Reason(thinkerText), memory.Sign(thinkerSignature), memory.ReasonEncrypted(thinkerRedacted),
			memory.Say("I have thought"), memory.Say(" about it."),
		}
	}}
}

// isThinkers reports whether m has all the reasoning of a thinker.
func isThinkers(m *llm.Message) bool {
	has := func(want llm.ReasoningDetail) bool {
		return slices.ContainsFunc(
			m.ReasoningDetails,
			func(d llm.ReasoningDetail) bool { return d.Signature == want.Signature && d.Data == want.Data },
		)
	}
	return m.Reasoning == thinkerText && has(llm.ReasoningDetail{Signature: thinkerSignature}) &&
		has(llm.ReasoningDetail{Data: thinkerRedacted})
}
