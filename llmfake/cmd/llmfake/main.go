// Llmfake is a fake of the servers of language models, for tests of programs in any language.
//
// Usage:
//
//	llmfake [flags] [script] [-- command arguments...]
//
// It serves chat completions, the Responses API, Anthropic's Messages API, embeddings, images and
// speech, for any model and any API key. Without a script, a simulated model replies: it repeats the
// user's text, calls the tools that it is offered, and makes values for JSON schemas. A script is
// a file in JSON or YAML with replies and rules; see the type Script of package llmfake. It is
// read again when it changes.
//
// With a command, llmfake runs it with the environment variables that SDKs read, such as
// OPENAI_BASE_URL and ANTHROPIC_BASE_URL, and ends with it:
//
//	llmfake testdata/replies.yaml -- npm test
//	llmfake testdata/replies.yaml -- pytest
//
// The exit status is that of the command, or 1 if a chat request had no reply in the script or a
// reply was not asked for. Without a command it serves until it is interrupted.
//
// With -record it forwards requests to real servers and writes a cassette when it ends, and with
// -replay it replies from one. See NewReplay of package llmfake.
//
// Tests talk to it over HTTP:
//
//   - GET /llmfake/requests returns the requests that have arrived, as a JSON array.
//   - GET /llmfake/problems returns an array of texts: requests without a reply, and with the
//     query left=1 also the replies that were not asked for.
//   - PUT /llmfake/script with a script, in YAML if the Content-Type has "yaml" and otherwise in
//     JSON, forgets everything and begins anew with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp/llmfake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A command is a run of the program.
type command struct {
	out, errors *syncWriter
	verbose     bool
	server      *llmfake.Server
	recording   bool
	script      string // the file; "" if there is none

	mu       sync.Mutex  // guards the fields below
	version  fileVersion // of the script that was read last
	failed   bool
	cleanups []func()
}

// A fileVersion tells whether a file has changed.
type fileVersion struct {
	modified time.Time
	size     int64
}

// run runs the program and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &command{out: &syncWriter{w: stdout}, errors: &syncWriter{w: stderr}}
	flags := flag.NewFlagSet("llmfake", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: llmfake [flags] [script] [-- command arguments...]")
		flags.PrintDefaults()
	}
	addr := flags.String("addr", "", "`address` to listen on (default 127.0.0.1:8484, or with a command any free port)")
	record := flags.String("record", "", "forward requests to real servers and write them and their replies to this `file`")
	replay := flags.String("replay", "", "reply from this `file`, which -record has written")
	openAI := flags.String("openai", "", "with -record, the base `URL` of the server of OpenAI's API (default OPENAI_BASE_URL, or OpenAI)")
	anthropic := flags.String(
		"anthropic",
		"",
		"with -record, the base `URL` of the server of Anthropic's API (default ANTHROPIC_BASE_URL, or Anthropic)",
	)
	speed := flags.Float64("speed", 0, "with -replay, the `factor` of the recorded speed; 0 means without waits")
	flags.BoolVar(&c.verbose, "v", false, "log requests")
	flagArgs, child := cutAtDashes(args)
	if err := flags.Parse(flagArgs); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	c.script = flags.Arg(0)
	c.recording = *record != ""
	isReplay := c.recording || *replay != ""
	switch {
	case flags.NArg() > 1:
		return c.usage("there is more than one script")
	case *record != "" && *replay != "":
		return c.usage("-record and -replay exclude each other")
	case isReplay && c.script != "":
		return c.usage("a script has no effect with -record and -replay")
	}
	if isReplay {
		c.server = llmfake.NewReplay(c, &llmfake.ReplayOptions{
			File: *record + *replay, Record: c.recording, OpenAI: *openAI, Anthropic: *anthropic, Speed: *speed,
		})
	} else {
		c.server = llmfake.NewServer(c)
	}
	if c.isFailed() {
		return 1
	}
	if c.script != "" {
		if _, err := c.readScript(); err != nil {
			c.errors.printf("llmfake: %v\n", err)
			return 1
		}
	}
	return c.serve(ctx, *addr, child)
}

// cutAtDashes returns the arguments before and after "--".
func cutAtDashes(args []string) (before, after []string) {
	for i, arg := range args {
		if arg == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

func (c *command) usage(message string) int {
	c.errors.printf("llmfake: %s\n", message)
	return 2
}

// serve serves until the child ends, or without one until ctx is done.
func (c *command) serve(ctx context.Context, addr string, child []string) int {
	if addr == "" {
		addr = "127.0.0.1:8484"
		if child != nil {
			addr = "127.0.0.1:0"
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.errors.printf("llmfake: %v\n", err)
		return 1
	}
	server := &http.Server{Handler: c.handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	status := 0
	if child == nil {
		url := localURL(l)
		c.out.printf(
			"llmfake is listening on %s\n\n  export OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=sk-llmfake\n  export ANTHROPIC_BASE_URL=%s ANTHROPIC_API_KEY=sk-llmfake\n\n",
			url,
			url,
			url,
		)
		select {
		case <-ctx.Done():
		case err := <-served:
			c.errors.printf("llmfake: %v\n", err)
			status = 1
		}
	} else {
		status = c.runChild(ctx, localURL(l), child)
	}
	if status != 0 && c.recording {
		c.Errorf("llmfake: the command has failed")
	}
	c.end()
	server.Close()
	if c.isFailed() && status == 0 {
		return 1
	}
	return status
}

// localURL returns the URL by which programs on this machine reach a listener.
func localURL(l net.Listener) string {
	addr := l.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", addr.Port)
	}
	return "http://" + addr.String()
}

// runChild runs a program against the server and returns its exit status.
func (c *command) runChild(ctx context.Context, url string, args []string) int {
	if len(args) == 0 {
		return c.usage("there is no command after --")
	}
	child := exec.CommandContext(ctx, args[0], args[1:]...)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = 10 * time.Second
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, c.out, c.errors
	child.Env = append(os.Environ(), c.server.EnvFor(url)...)
	err := child.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		c.errors.printf("llmfake: %s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// handler returns the handler of the program, which has the paths below /llmfake/ besides those
// of the server.
func (c *command) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /llmfake/requests", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, describeAll(c.server.Requests())) })
	mux.HandleFunc("GET /llmfake/problems", func(w http.ResponseWriter, r *http.Request) {
		problems := c.server.Problems()
		if left := c.server.LeftOver(); left != "" && r.URL.Query().Get("left") != "" {
			problems = append(problems, left)
		}
		if problems == nil {
			problems = []string{}
		}
		writeJSON(w, problems)
	})
	mux.HandleFunc("PUT /llmfake/script", c.putScript)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.reread()
		c.server.ServeHTTP(w, r)
	})
	return mux
}

// putScript serves PUT /llmfake/script.
func (c *command) putScript(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	var script *llmfake.Script
	if err == nil {
		script, err = llmfake.ParseScript(text, !strings.Contains(r.Header.Get("Content-Type"), "yaml"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.server.Reset(script)
	c.mu.Lock()
	c.failed = false
	c.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// readScript reads the file of the script if it has changed. If it cannot be read, the rules that
// were read before remain.
func (c *command) readScript() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock() // so that several requests read it once
	info, err := os.Stat(c.script)
	if err != nil {
		return false, err
	}
	version := fileVersion{info.ModTime(), info.Size()}
	if version == c.version {
		return false, nil
	}
	c.version = version
	script, err := llmfake.ReadScript(c.script)
	if err != nil {
		return false, err
	}
	c.server.Reset(script)
	return true, nil
}

// reread reads the script again if it has changed.
func (c *command) reread() {
	if c.script == "" {
		return
	}
	changed, err := c.readScript()
	switch {
	case errors.Is(err, fs.ErrNotExist): // as between the two steps with which editors replace a file
	case err != nil:
		c.errors.printf("llmfake: the script was not read again: %v\n", err)
	case changed:
		c.errors.printf("llmfake: read %s again\n", c.script)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // fails if the client has left
}

// A description is a request as tests see it.
type description struct {
	Number      int                  `json:"number"`
	Method      string               `json:"method"`
	Path        string               `json:"path"`
	Headers     map[string]string    `json:"headers"` // without API keys
	Body        any                  `json:"body"`    // decoded if it is JSON, and otherwise a string
	Protocol    string               `json:"protocol"`
	Operation   string               `json:"operation"`
	Model       string               `json:"model"`
	Stream      bool                 `json:"stream"`
	Turn        int                  `json:"turn"`
	User        string               `json:"user"`
	System      string               `json:"system"`
	Messages    []string             `json:"messages"` // as the method Transcript of a Request returns them
	Tools       []string             `json:"tools"`
	ToolResults []llmfake.ToolResult `json:"tool_results"`
	Status      int                  `json:"status"`
	Reply       string               `json:"reply"`
}

func describeAll(requests []*llmfake.Request) []description {
	list := make([]description, len(requests))
	for i, r := range requests {
		d := description{
			Number: r.Number, Method: r.Method, Path: r.Path, Headers: map[string]string{}, Protocol: r.Protocol, Operation: string(r.Operation),
			Model: r.Model, Stream: r.Stream, Turn: r.Turn(), User: r.UserText(), System: r.System(), Messages: r.Transcript(), Tools: r.Tools(),
			ToolResults: r.ToolResults(), Status: r.Status, Reply: r.Reply,
		}
		for name, values := range r.Header {
			if name != "Authorization" && name != "X-Api-Key" {
				d.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
			}
		}
		if json.Unmarshal(r.Body, &d.Body) != nil {
			d.Body = string(r.Body)
		}
		list[i] = d
	}
	return list
}

// The methods of [llmfake.TB].

func (c *command) Helper()      {}
func (c *command) Name() string { return "llmfake" }

func (c *command) Logf(format string, args ...any) { c.errors.printf(format+"\n", args...) }

func (c *command) Errorf(format string, args ...any) {
	c.errors.printf(format+"\n", args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = true
}

func (c *command) Fatalf(format string, args ...any) { c.Errorf(format, args...) }

func (c *command) Failed() bool { return c.isFailed() }

func (c *command) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

func (c *command) Setenv(key, value string) {}

func (c *command) Output() io.Writer {
	if c.verbose {
		return c.errors
	}
	return io.Discard
}

func (c *command) isFailed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// end runs the cleanup functions, which report the replies that were not asked for.
func (c *command) end() {
	c.mu.Lock()
	cleanups := c.cleanups
	c.mu.Unlock()
	for _, f := range cleanups {
		f()
	}
}

// A syncWriter may be used concurrently.
type syncWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

func (s *syncWriter) printf(format string, args ...any) { fmt.Fprintf(s, format, args...) }
