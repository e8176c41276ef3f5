package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// A tool runs a subcommand.
type tool struct {
	name     string
	tree     string // the checkout, which is never changed
	temp     string // a temporary directory
	goEnv    map[string]string
	out, log io.Writer
	start    time.Time
}

func newTool(ctx context.Context, dir, name string, out, log io.Writer) (*tool, error) {
	t := &tool{name: name, out: out, log: log, start: time.Now()}
	var err error
	if t.temp, err = os.MkdirTemp("", "llmhttp-"+name+"-"); err != nil {
		return nil, err
	}
	// The paths that the go command prints have no symbolic links.
	if t.temp, err = filepath.EvalSymlinks(t.temp); err != nil {
		return nil, err
	}
	text, err := t.git(ctx, dir, "rev-parse", "--show-toplevel")
	if err == nil {
		t.tree = text
		text, err = t.command(ctx, t.temp, nil, "go", "env", "-json", "GOFLAGS", "GOMODCACHE", "GONOSUMDB", "GOPROXY")
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &t.goEnv)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tool) close() {
	os.RemoveAll(t.temp)
}

// flags returns a set of flags whose arguments are described by usage.
func (t *tool) flags(usage string) *flag.FlagSet {
	flags := flag.NewFlagSet(t.name, flag.ContinueOnError)
	flags.SetOutput(t.log)
	flags.Usage = func() {
		fmt.Fprintf(t.log, "usage: scripts/%s.sh %s\n", t.name, usage)
		flags.PrintDefaults()
	}
	return flags
}

// step tells what happens next, and how long the command has run.
func (t *tool) step(format string, args ...any) {
	fmt.Fprintf(t.log, "%s: %5.1fs %s\n", t.name, time.Since(t.start).Seconds(), fmt.Sprintf(format, args...))
}

// command returns what a command prints to its standard output, without the last newline. An error has
// what it prints to its standard error.
func (t *tool) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // "go test" ends its tests
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), dir, err, &stderr, &stdout)
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

func (t *tool) git(ctx context.Context, dir string, args ...string) (string, error) {
	return t.command(ctx, dir, nil, "git", args...)
}

// checkout makes a copy of a commit, which shares no file with the tree that can be changed.
func (t *tool) checkout(ctx context.Context, revision, dir string) error {
	commit, err := t.git(ctx, t.tree, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return fmt.Errorf("there is no commit %q", revision)
	}
	if _, err := t.git(ctx, t.tree, "clone", "--quiet", "--no-checkout", "--no-tags", t.tree, dir); err != nil {
		return err
	}
	_, err = t.git(ctx, dir, "checkout", "--quiet", "--detach", commit)
	return err
}

// lastTag returns the last version of the root module that a commit has. It is empty if there is none.
func (t *tool) lastTag(ctx context.Context, revision string) string {
	tags, err := t.git(ctx, t.tree, "tag", "--merged", revision)
	if err != nil {
		return "" // there is no such commit
	}
	last := ""
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) && semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	return last
}
