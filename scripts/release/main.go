// Command release releases the modules of this repository, and compares them with earlier commits:
//
//	release v1.2.3  checks the tree, and makes the commits, tags and zips of a release in a copy
//	compat BASE     builds and tests the nested modules of a commit with the root module of HEAD
//	apidiff BASE    prints how the API of each module has changed since a commit
//
// The scripts of the same names call it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs a subcommand on the checkout that has dir.
func run(ctx context.Context, dir string, args []string, out, log io.Writer) error {
	commands := map[string]func(ctx context.Context, t *tool, args []string) error{
		"release": release,
		"compat":  compat,
		"apidiff": diffAPI,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("usage: release release|compat|apidiff [arguments]")
	}
	t, err := newTool(ctx, dir, args[0], out, log)
	if err != nil {
		return err
	}
	defer t.close()
	if err := commands[args[0]](ctx, t, args[1:]); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}
