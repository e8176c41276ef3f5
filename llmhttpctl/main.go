// Llmhttpctl manages the API keys and accounts in a database of package sqlstore and
// prints the usage that it holds. Run it without arguments for help.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/sqlstore"
)

const help = `llmhttpctl manages the API keys and accounts and prints the usage in a database of
llmhttp.

Usage:

  llmhttpctl migrate [flags]                 create or migrate the tables; makes a new SQLite file
  llmhttpctl keys create [flags]             create a key and print its secret once
  llmhttpctl keys list [flags]               list keys, oldest first
  llmhttpctl keys show [flags] ID            print the settings of a key
  llmhttpctl keys update [flags] ID          change the settings that the flags name
  llmhttpctl keys rotate [flags] ID          give a key a new secret and print it once
  llmhttpctl keys suspend [flags] ID...      disable keys until they are resumed
  llmhttpctl keys resume [flags] ID...       enable suspended keys
  llmhttpctl keys revoke [flags] ID...       disable keys for good
  llmhttpctl keys quota [flags] ID           print how much of its quota a key has used, or reset that
  llmhttpctl accounts create [flags] ID      create an account, whose keys share limits and credit
  llmhttpctl accounts list [flags]           list accounts, oldest first
  llmhttpctl accounts show [flags] ID        print the settings of an account, and what is left of its credit
  llmhttpctl accounts update [flags] ID      change the settings that the flags name
  llmhttpctl accounts suspend [flags] ID...  disable all keys of accounts until they are resumed
  llmhttpctl accounts resume [flags] ID...   enable suspended accounts
  llmhttpctl credit add [flags] ID           add an amount to the credit of an account
  llmhttpctl credit list [flags] ID          list what was added to the credit of an account, oldest first
  llmhttpctl usage [flags]                   print usage by day, model, key, account, end user or label
  llmhttpctl hash-password                   hash the password on the standard input, for the console
  llmhttpctl hash-password --generate        make a random password, print it to the standard error and hash it
  llmhttpctl version                         print the version

The flag --dsn or the environment variable LLMHTTP_DSN names the database:
postgres://user:password@host/database, or the path of a SQLite file. Other users
of the machine can see the flags of a process, so do not put a password there.

With --json, each key, account, entry or sum is a line of JSON. The exit status is
1 if the command failed and 2 if its arguments are wrong. Add --help to a command
for its flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &command{stdin: os.Stdin, out: printer{stdout: os.Stdout, stderr: os.Stderr}, dsn: os.Getenv("LLMHTTP_DSN")}
	os.Exit(c.run(ctx, os.Args[1:]))
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
	stdin io.Reader
	out   printer
	dsn   string
	name  string // such as "keys create"
}

// run runs the command that args name and returns the exit status.
func (c *command) run(ctx context.Context, args []string) int {
	err := c.dispatch(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(c.out.stderr, "llmhttpctl: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(c.out.stderr, "Run \"llmhttpctl %s\" for help.\n", strings.TrimSpace(c.name+" --help"))
		return exitUsage
	}
	return exitFailed
}

// dispatch runs the command that args name.
func (c *command) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(c.out.stderr, help)
		return usageErrorf("a command is missing")
	}
	name, rest := args[0], args[1:]
	word := name
	if name == "keys" || name == "accounts" || name == "credit" {
		if len(rest) == 0 {
			return usageErrorf("a command is missing after %s", name)
		}
		word, rest = rest[0], rest[1:]
		name += " " + word
	}
	switch {
	case word == "help" || word == "-h" || word == "-help" || word == "--help":
		_, err := fmt.Fprint(c.out.stdout, help)
		return err
	case name == "--version" || name == "-version":
		name = "version"
	case strings.HasPrefix(word, "-"):
		return usageErrorf("flags must follow the command")
	}
	run := c.commands()[name]
	if run == nil {
		return usageErrorf("unknown command %s", quote(name))
	}
	c.name = name
	return run(ctx, rest)
}

// commands returns the functions of the commands by their names.
func (c *command) commands() map[string]func(context.Context, []string) error {
	return map[string]func(context.Context, []string) error{
		"migrate":          c.migrate,
		"keys create":      c.createKey,
		"keys list":        c.listKeys,
		"keys show":        c.showKey,
		"keys update":      c.updateKey,
		"keys rotate":      c.rotateKey,
		"keys suspend":     c.changeKeys("suspended", setSuspended(true)),
		"keys resume":      c.changeKeys("active", setSuspended(false)),
		"keys revoke":      c.changeKeys("revoked", revokeKey),
		"keys quota":       c.showQuota,
		"accounts create":  c.createAccount,
		"accounts list":    c.listAccounts,
		"accounts show":    c.showAccount,
		"accounts update":  c.updateAccount,
		"accounts suspend": c.changeAccounts("suspended", true),
		"accounts resume":  c.changeAccounts("active", false),
		"credit add":       c.addCredit,
		"credit list":      c.listCredit,
		"usage":            c.usage,
		"hash-password":    c.hashPassword,
		"version":          c.printVersion,
	}
}

// newPlainFlags returns a flag set without flags.
func (c *command) newPlainFlags() *flag.FlagSet {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {} // FlagSet would also call it after an error
	return f
}

// newFlags returns a flag set with the flags that all commands share which use the database.
func (c *command) newFlags() *flag.FlagSet {
	f := c.newPlainFlags()
	f.StringVar(&c.dsn, "dsn", c.dsn, "the `database`; the default is LLMHTTP_DSN")
	f.BoolVar(&c.out.json, "json", false, "write a line of JSON for each key, account, entry or sum")
	return f
}

// parse is parseFlags for a command that uses the database. If operandSyntax is empty, operands are
// an error.
func (c *command) parse(f *flag.FlagSet, operandSyntax string, args []string) ([]string, error) {
	operands, err := c.parseFlags(f, operandSyntax, args)
	switch {
	case err != nil:
		return nil, err
	case operandSyntax == "" && len(operands) > 0:
		return nil, usageErrorf("unexpected argument %s", quote(operands[0]))
	case c.dsn == "":
		return nil, usageErrorf("no database: set LLMHTTP_DSN or --dsn")
	}
	return operands, nil
}

// parseFlags parses args and returns the operands. Flags may stand before, between and after operands.
// operandSyntax describes the operands in the help for the command.
func (c *command) parseFlags(f *flag.FlagSet, operandSyntax string, args []string) ([]string, error) {
	var operands []string
	for len(args) > 0 {
		err := f.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			c.out.printHelp(c.name, f, operandSyntax)
			return nil, err
		}
		if err != nil {
			return nil, usageErrorf("%v", err)
		}
		rest := f.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			operands = append(operands, rest...)
			break
		}
		if len(rest) > 0 {
			operands, rest = append(operands, rest[0]), rest[1:]
		}
		args = rest
	}
	return operands, nil
}

// quote quotes an argument for an error. It shows only the beginning of an
// argument that may be a secret or a DSN with a password in the wrong place.
func quote(arg string) string {
	if len(arg) > 24 || strings.ContainsAny(arg, ":@=") {
		return strconv.Quote(arg[:min(len(arg), 6)]) + "..."
	}
	return strconv.Quote(arg)
}

// migrate is the only command that changes the schema of the database.
func (c *command) migrate(ctx context.Context, args []string) error {
	if _, err := c.parse(c.newFlags(), "", args); err != nil {
		return err
	}
	s, err := sqlstore.Open(ctx, c.dsn, &sqlstore.Options{KeepRecords: -1})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out.stdout, "The database is up to date.")
	return errors.Join(err, s.Close())
}

// withStore opens the database, calls f and closes the database.
func (c *command) withStore(ctx context.Context, f func(s *sqlstore.Store) error) error {
	// Pruning is up to the servers that share the database.
	s, err := sqlstore.Open(ctx, c.dsn, &sqlstore.Options{KeepRecords: -1, NoMigrate: true})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

func (c *command) printVersion(_ context.Context, args []string) error {
	operands, err := c.parseFlags(c.newPlainFlags(), "", args)
	if err == nil && len(operands) > 0 {
		err = usageErrorf("unexpected argument %s", quote(operands[0]))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out.stdout, "llmhttpctl", version())
	return err
}

// version returns the version of the module, or the commit of a build in a clone.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "(devel)"
}

// maxPasswordLine bounds what hashPassword reads.
const maxPasswordLine = 4096

// hashPassword prints the hash of the first line of the standard input, or that of a random password. It
// writes the password to the standard error, so that the hash can be assigned to a variable.
func (c *command) hashPassword(_ context.Context, args []string) error {
	f := c.newPlainFlags()
	generate := f.Bool("generate", false, "make a random password and print it to the standard error, instead of reading one from the standard input")
	operands, err := c.parseFlags(f, "<FILE", args)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return usageErrorf(
			"hash-password has no arguments but --generate: the password is read from the standard input, where other users of the machine cannot see it",
		)
	}
	if *generate {
		password, hash := passwordhash.Generate()
		_, err := fmt.Fprintln(c.out.stderr, password)
		_, hashErr := fmt.Fprintln(c.out.stdout, hash)
		return errors.Join(err, hashErr)
	}
	line, err := bufio.NewReader(io.LimitReader(c.stdin, maxPasswordLine)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	hash, err := passwordhash.New(strings.TrimRight(line, "\r\n"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out.stdout, hash)
	return err
}
