// Llmhttpctl looks after the keys and the usage in a database of package
// sqlstore. Run it without arguments to learn how.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp/sqlstore"
)

const help = `llmhttpctl looks after the keys and the usage in a database of llmhttp.

Usage:

  llmhttpctl keys create [flags]          make a key, and show its secret once
  llmhttpctl keys list [flags]            list keys, oldest first
  llmhttpctl keys update [flags] ID       change what the flags name
  llmhttpctl keys rotate [flags] ID       give a key a new secret, and show it once
  llmhttpctl keys revoke [flags] ID...    end keys for good
  llmhttpctl usage [flags]                show what an account used

The database is the one that --dsn names, or LLMHTTP_DSN in the environment:
postgres://user:password@host/database, or the path of a file of SQLite. Others
on the machine may see the flags of a process, so do not put a password there.

With --json, each thing is a line of JSON. The exit status is 1 if something
failed, and 2 if the command is not one of these. For the flags of a command,
add --help.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &command{ctx: ctx, out: os.Stdout, err: os.Stderr, dsn: os.Getenv("LLMHTTP_DSN")}
	os.Exit(c.run(os.Args[1:]))
}

const (
	exitFailed = 1
	exitUsage  = 2
)

// A usageError is a mistake in the arguments.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// A command is one run of the program.
type command struct {
	ctx      context.Context
	out, err io.Writer
	dsn      string
	json     bool
	name     string // with its group, such as "keys create"
	help     func() // writes what its flags are
}

func (c *command) run(args []string) int {
	err := c.dispatch(args)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(c.err, "llmhttpctl: %v\nRun \"llmhttpctl %s\" for help.\n", err, strings.TrimSpace(c.name+" --help"))
		return exitUsage
	}
	fmt.Fprintf(c.err, "llmhttpctl: %v\n", err)
	return exitFailed
}

func (c *command) dispatch(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(c.err, help)
		return usageErrorf("a command is missing")
	}
	name, rest := args[0], args[1:]
	word := name
	if name == "keys" {
		if len(rest) == 0 {
			return usageErrorf("a command is missing after keys")
		}
		word, rest = rest[0], rest[1:]
		name += " " + word
	}
	switch {
	case word == "help" || word == "-h" || word == "-help" || word == "--help":
		_, err := fmt.Fprint(c.out, help)
		return err
	case strings.HasPrefix(word, "-"):
		return usageErrorf("flags come after the command")
	}
	run, ok := map[string]func([]string) error{
		"keys create": c.createKey,
		"keys list":   c.listKeys,
		"keys update": c.updateKey,
		"keys rotate": c.rotateKey,
		"keys revoke": c.revokeKeys,
		"usage":       c.usage,
	}[name]
	if !ok {
		return usageErrorf("there is no command %s", quote(name))
	}
	c.name = name
	return run(rest)
}

// flags returns a set with the flags that all commands have.
func (c *command) flags(operands string) *flag.FlagSet {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.dsn, "dsn", c.dsn, "the `database`, in place of LLMHTTP_DSN")
	f.BoolVar(&c.json, "json", false, "write JSON, a line for each thing")
	f.Usage = func() {} // which errors would call, too
	c.help = func() {
		fmt.Fprintf(c.out, "Usage: %s\n\n", strings.TrimSpace("llmhttpctl "+c.name+" [flags] "+operands))
		f.VisitAll(func(g *flag.Flag) {
			value, text := flag.UnquoteUsage(g)
			fmt.Fprintf(c.out, "  %s\n        %s\n", strings.TrimSpace("--"+g.Name+" "+value), text)
		})
	}
	return f
}

// parse parses flags, which may stand before and after what they apply to, and
// returns the latter.
func (c *command) parse(f *flag.FlagSet, args []string) ([]string, error) {
	var operands []string
	for {
		if err := f.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				c.help()
				return nil, err
			}
			return nil, usageErrorf("%v", err)
		}
		rest := f.Args()
		if len(rest) == 0 {
			break
		}
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			operands = append(operands, rest...)
			break
		}
		operands, args = append(operands, rest[0]), rest[1:]
	}
	if c.dsn == "" {
		return nil, usageErrorf("no database: set LLMHTTP_DSN or --dsn")
	}
	return operands, nil
}

// unexpected is the error of a command that takes no operands.
func unexpected(operands []string) error {
	return usageErrorf("unexpected argument %s", quote(operands[0]))
}

// quote quotes an argument for an error, and only the beginning of what may be
// a secret, or a DSN with a password, in the wrong place.
func quote(arg string) string {
	if len(arg) > 24 || strings.ContainsAny(arg, ":@=") {
		return strconv.Quote(arg[:min(len(arg), 6)]) + "..."
	}
	return strconv.Quote(arg)
}

// open opens the database, calls f and closes it.
func (c *command) open(f func(s *sqlstore.Store) error) error {
	s, err := sqlstore.Open(c.ctx, c.dsn, &sqlstore.Options{KeepRecords: -1}) // what is kept is not for this program to decide
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

func (c *command) writeJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes rows of cells in columns.
func (c *command) table(rows [][]string) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, text := range row {
			row[i] = cell(text)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// cell returns text as a terminal may show it.
func cell(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	if text == "" {
		return "-"
	}
	return text
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
