// Llmhttpctl manages the API keys and accounts in a database of package sqlstore and
// prints the usage that it holds. Run it without arguments for help.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// rootHelp is a template of package cli. It lists the commands of all groups.
const rootHelp = `{{define "line"}}  {{.FullName}} [flags]{{with .ArgsUsage}} {{.}}{{end}}{{"\t"}}{{.Usage}}
{{end}}{{.Name}} {{.Usage}}

Usage:

{{range .VisibleCommands}}{{range .VisibleCommands}}{{template "line" .}}{{else}}{{template "line" .}}{{end}}{{end}}
{{.Description}}
`

const description = `The flag --dsn or the environment variable LLMHTTP_DSN names the database:
postgres://user:password@host/database, or the path of a SQLite file. Other users
of the machine can see the flags of a process, so do not put a password there.

With --json, each key, account, entry or sum is a line of JSON. The exit status is
1 if the command failed and 2 if its arguments are wrong. Add --help to a command
for its flags.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &command{out: printer{stdout: os.Stdout, stderr: os.Stderr}}
	os.Exit(c.run(ctx, os.Args))
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
	out  printer
	dsn  string
	name string // such as "llmhttpctl keys create"
}

// run runs the command that args name and returns the exit status.
func (c *command) run(ctx context.Context, args []string) int {
	// "help keys" and "keys help" mean "keys --help".
	if i := slices.Index(args[:min(len(args), 3)], "help"); i > 0 {
		args = append(slices.Delete(slices.Clone(args), i, i+1), "--help")
	}
	cli.VersionPrinter = func(*cli.Command) { fmt.Fprintln(c.out.stdout, "llmhttpctl", version()) }
	cli.HelpPrinter = func(w io.Writer, template string, data any) {
		cli.HelpPrinterCustom(w, template, data, map[string]any{"wrapAt": func() int { return 100 }})
	}
	flagText := cli.FlagStringer
	cli.FlagStringer = func(f cli.Flag) string { return strings.Replace(flagText(f), "\t", "\n", 1) }
	err := c.root().Run(ctx, args)
	if err == nil {
		return 0
	}
	fmt.Fprintf(c.out.stderr, "llmhttpctl: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(c.out.stderr, "Run \"%s --help\" for help.\n", c.name)
		return exitUsage
	}
	return exitFailed
}

// root returns the command with all others.
func (c *command) root() *cli.Command {
	group := func(name, usage string, commands ...*cli.Command) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Commands: commands}
	}
	root := group("llmhttpctl", "manages the API keys and accounts and prints the usage in a database of llmhttp.",
		c.store(&cli.Command{Name: "migrate", Usage: "create or migrate the tables; makes a new SQLite file"}, nil, c.migrate),
		group("keys", "manage keys", c.createKey(), c.listKeys(), c.showKey(), c.updateKey(), c.rotateKey(),
			c.changeKeys("suspend", "disable keys until they are resumed", "suspended", setSuspended(true)),
			c.changeKeys("resume", "enable suspended keys", "active", setSuspended(false)),
			c.changeKeys("revoke", "disable keys for good", "revoked", revokeKey), c.showQuota()),
		group("accounts", "manage accounts, whose keys share limits and credit", c.createAccount(), c.listAccounts(), c.showAccount(), c.updateAccount(),
			c.changeAccounts("suspend", "disable all keys of accounts until they are resumed", "suspended", true),
			c.changeAccounts("resume", "enable suspended accounts", "active", false)),
		group("credit", "add to the credit of accounts", c.addCredit(), c.listCredit()),
		c.usage(),
		c.hashPassword(),
		&cli.Command{Name: "version", Usage: "print the version", Action: func(_ context.Context, cmd *cli.Command) error {
			cli.ShowVersion(cmd)
			return nil
		}},
	)
	root.Version = version()
	root.Description = description
	root.CustomRootCommandHelpTemplate = rootHelp
	root.ArgValidator = c.checkOperands
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // run reports errors
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = func(completion *cli.Command) {
		completion.Hidden = false
		_ = completion.Walk(c.prepare)
		for _, shell := range completion.Commands {
			shell.Usage = "print the script that completes commands and flags in " + shell.Name
		}
	}
	_ = root.Walk(c.prepare)
	return root
}

// prepare sets what all commands have in common.
func (c *command) prepare(cmd *cli.Command) error {
	cmd.HideHelpCommand = true // it would take the ID "help" for itself
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		c.name = cmd.FullName()
		if len(cmd.Commands) > 0 {
			return usageErrorf("flags must follow the command")
		}
		return usageErrorf("%v", err)
	}
	if len(cmd.Commands) > 0 {
		cmd.StopOnNthArg = new(1) // an unknown command is reported before its flags are
	}
	return nil
}

// checkOperands is the ArgValidator of all commands. It returns an error if a group has no command
// or a command not the operands that its ArgsUsage describes.
func (c *command) checkOperands(_ context.Context, cmd *cli.Command) error {
	c.name = cmd.FullName()
	_, path, _ := strings.Cut(c.name, " ")
	isKey := strings.HasPrefix(path, "keys ")
	kind, one := "account", "an account"
	if isKey {
		kind, one = "key", "a key"
	}
	operands := cmd.Args().Slice()
	switch n := len(operands); {
	case n == 0 && path == "":
		cmd.Writer = cmd.ErrWriter
		_ = cli.ShowRootCommandHelp(cmd)
		return usageErrorf("a command is missing")
	case n == 0 && len(cmd.Commands) > 0:
		return usageErrorf("a command is missing after %s", path)
	case len(cmd.Commands) > 0:
		return usageErrorf("unknown command %s", quote(strings.TrimSpace(path+" "+operands[0])))
	case n > 0 && cmd.Name == "hash-password":
		return usageErrorf(
			"hash-password has no arguments but --generate: the password is read from the standard input, where other users of the machine cannot see it",
		)
	case n > 0 && cmd.ArgsUsage == "":
		return usageErrorf("unexpected argument %s", quote(operands[0]))
	case n != 1 && cmd.ArgsUsage == "ID":
		return usageErrorf("expected the ID of one %s", kind)
	case n == 0 && cmd.ArgsUsage == "ID...":
		return usageErrorf("expected the ID of %s", one)
	}
	if isKey && slices.ContainsFunc(operands, func(id string) bool { return !strings.HasPrefix(id, "key_") }) {
		// The text does not contain the ID, which may be a secret that was mistaken for one.
		return usageErrorf("the ID of a key begins with key_: \"llmhttpctl keys list\" shows it next to the beginning of the secret")
	}
	return nil
}

// quote quotes an argument for an error. It shows only the beginning of an
// argument that may be a secret or a DSN with a password in the wrong place.
func quote(arg string) string {
	if len(arg) > 24 || strings.ContainsAny(arg, ":@=") {
		return strconv.Quote(arg[:min(len(arg), 6)]) + "..."
	}
	return strconv.Quote(arg)
}

// store returns cmd with the flags of all commands that use the database, and with the operands as
// ids. It checks the flags by check, unless that is nil, before it opens the database for run.
func (c *command) store(cmd *cli.Command, check func() error, run func(ctx context.Context, s *sqlstore.Store, ids []string) error) *cli.Command {
	cmd.Flags = append(cmd.Flags,
		&cli.StringFlag{Name: "dsn", Destination: &c.dsn, Sources: cli.EnvVars("LLMHTTP_DSN"), HideDefault: true, Usage: "the `database`"},
		&cli.BoolFlag{Name: "json", Destination: &c.out.json, Usage: "write a line of JSON for each key, account, entry or sum"},
	)
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		if c.dsn == "" {
			return usageErrorf("no database: set LLMHTTP_DSN or --dsn")
		}
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		// Pruning is up to the servers that share the database, and only migrate changes its schema.
		s, err := sqlstore.Open(ctx, c.dsn, &sqlstore.Options{KeepRecords: -1, NoMigrate: cmd.Name != "migrate"})
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, s, cmd.Args().Slice()), s.Close())
	}
	return cmd
}

func (c *command) migrate(context.Context, *sqlstore.Store, []string) error {
	_, err := fmt.Fprintln(c.out.stdout, "The database is up to date.")
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
func (c *command) hashPassword() *cli.Command {
	generate := &cli.BoolFlag{
		Name: "generate", Usage: "make a random password and print it to the standard error, instead of reading one from the standard input",
	}
	run := func(context.Context, *cli.Command) error {
		if generate.Get() == true {
			password, hash := passwordhash.Generate()
			_, err := fmt.Fprintln(c.out.stderr, password)
			_, hashErr := fmt.Fprintln(c.out.stdout, hash)
			return errors.Join(err, hashErr)
		}
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxPasswordLine)).ReadString('\n')
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
	return &cli.Command{
		Name: "hash-password", ArgsUsage: "<FILE", Usage: "hash the password on the standard input, or make one, for the console",
		Flags: []cli.Flag{generate}, Action: run,
	}
}
