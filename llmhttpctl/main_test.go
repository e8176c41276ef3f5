package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/sqlstore"
)

var update = flag.Bool("update", false, "write the output of the commands to testdata")

// If this environment variable is set, the test binary runs main.
const runMain = "LLMHTTPCTL_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
	}
	status := m.Run()
	servertest.Close()
	os.Exit(status)
}

// newProcess returns a command that runs llmhttpctl in a process of its own.
func newProcess(dsn string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	// The race detector would otherwise delay the end of each process by a second.
	cmd.Env = append(os.Environ(), runMain+"=1", "LLMHTTP_DSN="+dsn, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// runProcess runs llmhttpctl and returns its output and exit status.
func runProcess(t *testing.T, dsn string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := newProcess(dsn, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// A transcript is a list of commands with their output. It replaces values that
// differ from run to run by text of the same width, so that tables stay aligned.
type transcript struct {
	dsn  string
	ids  []string // of keys, in the order of their first output
	text strings.Builder
}

var (
	idPattern     = regexp.MustCompile(`key_[a-z2-7]{20}`)
	secretPattern = regexp.MustCompile(`sk-[\w-]{43}`)
	prefixPattern = regexp.MustCompile(`sk-[\w-]{8}`)
	timePattern   = regexp.MustCompile(`2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

func (x *transcript) mask(s string) string {
	s = idPattern.ReplaceAllStringFunc(s, func(id string) string {
		i := slices.Index(x.ids, id)
		if i < 0 {
			i = len(x.ids)
			x.ids = append(x.ids, id)
		}
		return fmt.Sprintf("key_%020d", i+1)
	})
	s = secretPattern.ReplaceAllString(s, "sk-"+strings.Repeat("*", 43))
	s = prefixPattern.ReplaceAllString(s, "sk-********")
	return timePattern.ReplaceAllStringFunc(s, func(s string) string {
		if strings.HasPrefix(s, "2999") || strings.HasPrefix(s, "2026-03") {
			return s // a time in an argument of the command
		}
		return "YYYY-MM-DDThh:mm:ssZ"
	})
}

// run runs a command. The argument #1 stands for the first of x.ids.
func (x *transcript) run(t *testing.T, args ...string) {
	t.Helper()
	actual := slices.Clone(args)
	for i, arg := range actual {
		for n, id := range x.ids {
			if arg == fmt.Sprint("#", n+1) {
				actual[i] = id
			}
		}
	}
	stdout, stderr, status := runProcess(t, x.dsn, actual...)
	fmt.Fprintf(&x.text, "$ llmhttpctl %s\n%s", strings.Join(args, " "), x.mask(stdout))
	for line := range strings.Lines(x.mask(stderr)) {
		x.text.WriteString("! " + line)
	}
	fmt.Fprintf(&x.text, "= %d\n\n", status)
}

// A key may have the scopes of endpoints of the host. One that looks like a typing error is pointed out,
// and kept.
func TestKeys_ScopesOfHosts(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "llm.db")
	_, _, status := runProcess(t, dsn, "migrate")
	require.Zero(t, status)
	create := func(scopes string) (stdout, stderr string) {
		stdout, stderr, status := runProcess(t, dsn, "keys", "create", "--json", "--scopes", scopes)
		require.Zero(t, status, stderr)
		return stdout, stderr
	}
	stdout, stderr := create("chat,classify")
	assert.Contains(t, stdout, `"scopes":["chat","classify"]`)
	assert.Empty(t, stderr)
	stdout, stderr = create("chats")
	assert.Contains(t, stdout, `"scopes":["chats"]`)
	const warning = "llmhttpctl: warning: llmhttp has no endpoint with the scope \"chats\": did you mean \"chat\"?\n"
	assert.Equal(t, warning, stderr)
	_, stderr, status = runProcess(t, dsn, "keys", "update", idPattern.FindString(stdout), "--name", "x")
	assert.Zero(t, status)
	assert.Equal(t, warning, stderr)
}

// TestTranscript compares commands and their output with a golden file.
func TestTranscript(t *testing.T) {
	for name, newDatabase := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "llm.db") },
		"PostgreSQL": func(t *testing.T) string { return servertest.Postgres(t, servertest.Args("-c", "fsync=off")).DSN() },
	} {
		t.Run(name, func(t *testing.T) {
			x := &transcript{dsn: newDatabase(t)}
			x.run(t, "migrate")
			x.run(t, "migrate")
			x.run(t, "keys", "list")
			x.run(t, "keys", "create")
			x.run(t, "keys", "create", "--account", "acme", "--name", "for the CI", "--scopes", "chat,models", "--models", "small-*,large", "--expires", "2999-01-31",
				"--requests", "60/min,burst=10", "--tokens", "20k/90s", "--quota", "1_000_000/30d", "--max-completion-tokens", "900", "--concurrent", "4")
			x.run(t, "keys", "create", "--json", "--account=acme", "--scopes=none", "--models=all", "--requests=-1/h", "--name", "\x1b[31mred\n")
			x.run(t, "keys", "list")
			x.run(t, "keys", "list", "--account", "acme", "--json")
			x.run(t, "keys", "list", "--limit", "2")
			x.run(t, "keys", "list", "--search", "THE CI")
			x.run(t, "keys", "list", "--account", "nobody")
			x.run(t, "keys", "show", "#2")
			x.run(t, "keys", "show", "key_none")
			x.run(t, "keys", "suspend", "#2")
			x.run(t, "keys", "list", "--search", "THE CI")
			x.run(t, "keys", "resume", "--json", "#2")
			x.run(t, "keys", "list", "--limit", "0", "--after", "#2")
			x.run(t, "keys", "update", "#2", "--name", "new", "--quota", "none", "--expires", "never", "--scopes", "all")
			x.run(t, "keys", "update", "--json", "#2", "--tokens", "5/s")
			x.run(t, "keys", "update", "#2")
			x.run(t, "keys", "rotate", "#2", "--overlap", "1d")
			x.run(t, "keys", "rotate", "#2", "--json")
			x.run(t, "keys", "revoke", "#1", "key_none", "#2")
			x.run(t, "keys", "revoke", "--json", "#2")
			x.run(t, "keys", "rotate", "#2")
			x.run(t, "keys", "update", "#2", "--name", "x")
			x.run(t, "keys", "list")

			recordUsage(t, x.dsn)
			x.run(t, "usage", "--account", "acme", "--from", "2026-03-01", "--to", "2026-03-15")
			x.run(t, "usage", "--account", "acme", "--from", "2026-03-01", "--to", "2026-04-01", "--by", "model")
			x.run(t, "usage", "--account", "acme", "--to", "2026-03-14", "--json")
			x.run(t, "usage", "--account", "nobody")
			x.run(t, "usage", "--by", "account", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "account", "--totals", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "account", "--totals", "--json", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "day", "--account", "acme", "--totals", "--csv", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "model", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "key", "--limit", "1", "--from", "2026-03-01", "--to", "2026-04-01")
			x.run(t, "usage", "--by", "model", "--account", "acme", "--csv", "--from", "2026-03-01", "--to", "2026-04-01")

			for _, query := range [][]string{
				{"--by", "user", "--model", "large"}, {"--by", "user", "--totals", "--json", "--limit", "1"}, {"--by", "label:team", "--csv", "--totals"},
				{"--by", "label:team", "--json", "--user", "user 0", "--totals"}, {"--by", "model", "--limit", "1"}, {"--by", "account", "--label", "team=red", "--totals"},
				{"--by", "account", "--interval", "month", "--zone", "America/New_York", "--totals", "--limit", "1"},
				{"--by", "key", "--order", "requests", "--limit", "2", "--totals", "--json"}, {"--by", "total", "--interval", "hour", "--limit", "1", "--csv", "--from", "2026-03-15", "--to", "2026-03-15", "--zone", "Asia/Kolkata"},
				{"--by", "total", "--operation", "chat", "--status", "timeout", "--target", "none"}, {"--by", "model", "--order", "images", "--limit", "1", "--json"},
			} {
				x.run(t, append([]string{"usage", "--from", "2026-03-01", "--to", "2026-04-01"}, query...)...)
			}

			x.run(t, "keys", "create", "--account", "acme", "--quota", "10000,2.5usd/month")
			recordNow(t, x.dsn, x.ids[3], 1000)
			x.run(t, "keys", "quota", "#4")
			x.run(t, "keys", "quota", "#4", "--reset")
			x.run(t, "keys", "update", "#4", "--quota", "-1/all")
			x.run(t, "keys", "quota", "#4", "--json")
			x.run(t, "keys", "update", "#4", "--quota", "none")
			x.run(t, "keys", "quota", "#4", "--reset")

			testAccounts(t, x)

			if *update {
				require.NoError(t, os.WriteFile("testdata/transcript.txt", []byte(x.text.String()), 0o666))
			}
			golden, err := os.ReadFile("testdata/transcript.txt")
			require.NoError(t, err)
			assert.Equal(t, string(golden), x.text.String())
		})
	}
}

// testAccounts runs the commands of accounts and credit.
func testAccounts(t *testing.T, x *transcript) {
	for _, line := range []string{
		"accounts create shop --name Shop --prepaid --requests 60/min --user-tokens 5k/min --label team=red --label plan=small",
		"accounts create agency --quota 20usd/month --user-quota -1/all --json",
		"accounts create shop",
		"accounts create new --prepaid --quota 5usd/month",
		"accounts list",
		"accounts list --limit 1 --json",
		"accounts list --search SHO --after shop",
		"credit add shop --amount 20usd --id pay_1 --note invoice",
		"credit add shop --amount 20usd --id pay_1 --note invoice",
		"credit add shop --amount 30usd --id pay_1",
		"credit add shop --amount -2.5usd --id fix_1 --json",
		"credit add agency --amount 1usd --id pay_2",
		"credit list shop",
		"credit list shop --newest --limit 1",
		"credit list shop --after pay_1 --json",
		"credit list shop --after pay_2",
		"credit list nobody",
	} {
		x.run(t, strings.Fields(line)...)
	}
	s, err := sqlstore.Open(t.Context(), x.dsn, nil)
	require.NoError(t, err)
	require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: "shop", Account: "shop", KeyID: "key_s", Time: time.Now(), Cost: llmhttp.Cost{Input: llm.USD(3) / 4}}))
	require.NoError(t, s.Close())
	for _, line := range []string{
		"accounts show shop",
		"accounts show shop --json",
		"accounts show agency",
		"accounts show nobody",
		"accounts update shop --no-label plan --label team=blue --user-tokens none --concurrent 4",
		"accounts update agency --prepaid",
		"accounts update agency --prepaid --quota none",
		"accounts update shop --prepaid=false",
		"accounts suspend shop nobody",
		"accounts list --search shop",
		"accounts resume shop --json",
		"usage --account agency --from 2026-03-01 --to 2026-04-01",
	} {
		x.run(t, strings.Fields(line)...)
	}
}

func recordUsage(t *testing.T, dsn string) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), dsn, &sqlstore.Options{KeepRecords: -1})
	require.NoError(t, err)
	start := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{
		ID: "globex", Account: "globex", KeyID: "key_g", Model: "large", Time: start, Units: llmhttp.Units{PromptTokens: 5, CompletionTokens: 7},
	}))
	for i := range 50 {
		require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{
			ID: fmt.Sprint(i), Account: "acme", KeyID: fmt.Sprint("key_", i%3), Model: []string{"large", "small\t"}[i%2], Time: start.Add(time.Duration(i) * time.Hour),
			Units: llmhttp.Units{PromptTokens: int64(10 * i), CompletionTokens: int64(i), Images: int64(i % 3)},
			User:  fmt.Sprint("user ", i%2), Labels: []llmhttp.Label{{Name: "team", Value: []string{"red", "=1+1"}[i%2]}},
		}))
	}
	require.NoError(t, s.Close())
}

// recordNow records usage of the present time.
func recordNow(t *testing.T, dsn, key string, tokens int) {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), dsn, &sqlstore.Options{KeepRecords: -1})
	require.NoError(t, err)
	require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: key, Account: "acme", KeyID: key, Time: time.Now(), Units: llmhttp.Units{PromptTokens: int64(tokens)}}))
	require.NoError(t, s.Close())
}

// Only migrate creates a database or changes its schema.
func TestMigrate_IsTheOnlyCommandThatCreates(t *testing.T) {
	for name, dsn := range map[string]string{
		"SQLite":     filepath.Join(t.TempDir(), "llm.db"),
		"PostgreSQL": servertest.Postgres(t, servertest.Args("-c", "fsync=off")).DSN(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{
				{"keys", "list"}, {"keys", "create"}, {"keys", "update", "key_x", "--name", "x"}, {"keys", "rotate", "key_x"},
				{"keys", "revoke", "key_x"}, {"keys", "quota", "key_x"}, {"usage", "--account", "a"},
				{"accounts", "create", "a"}, {"accounts", "list"}, {"credit", "add", "a", "--amount", "1usd"},
			} {
				_, stderr, status := runProcess(t, dsn, args...)
				assert.Equal(t, 1, status, args)
				assert.Contains(t, stderr, "migrate it with llmhttpctl migrate", args)
				assert.NoFileExists(t, dsn)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		`a command is missing`:                                                   {},
		`a command is missing after keys`:                                        {"keys"},
		`a command is missing after accounts`:                                    {"accounts"},
		`unknown command "credit drop"`:                                          {"credit", "drop"},
		`expected the ID of one account`:                                         {"accounts", "show"},
		`expected the ID of an account`:                                          {"accounts", "suspend"},
		"llmhttpctl accounts update --help":                                      {"accounts", "update", "a"},
		`user-tokens: the number must not be 0`:                                  {"accounts", "create", "a", "--user-tokens", "0/m"},
		`"team" is not a label`:                                                  {"accounts", "create", "a", "--label", "team"},
		`invalid value "maybe" for flag -prepaid: parse error`:                   {"accounts", "create", "a", "--prepaid=maybe"},
		`--amount is missing`:                                                    {"credit", "add", "a"},
		`"20" is not a nonzero amount such as 20usd`:                             {"credit", "add", "a", "--amount", "20"},
		`unknown command "keys drop"`:                                            {"keys", "drop"},
		`unknown command "nonsense"`:                                             {"nonsense", "--json"},
		`flag provided but not defined: -nonsense`:                               {"usage", "--nonsense"},
		`unexpected argument "x"`:                                                {"keys", "list", "x"},
		`unexpected argument "y"`:                                                {"keys", "create", "--json", "y"},
		`unexpected argument "--json"`:                                           {"usage", "--account", "a", "--", "--json"},
		`the limit is negative`:                                                  {"keys", "list", "--limit", "-1"},
		`expected the ID of one key`:                                             {"keys", "rotate"},
		`the ID of a key begins with key_: "llmhttpctl keys`:                     {"keys", "revoke", "key_x", ""},
		`flags must follow the command`:                                          {"--json", "keys", "list"},
		"flags must follow the command\nRun \"llmhttpctl keys --help\"":          {"keys", "--json", "list"},
		`flag needs an argument: --name`:                                         {"keys", "create", "--name"},
		`unknown command "completion tcsh"`:                                      {"completion", "tcsh"},
		`expected the ID of a key`:                                               {"keys", "revoke"},
		`no flag names a setting to change`:                                      {"keys", "update", "key_x"},
		`the scope "Chat" is malformed`:                                          {"keys", "create", "--scopes", "chat,Chat"},
		`"all" is not a scope`:                                                   {"keys", "create", "--scopes", "chat,all"},
		`the list has an empty item`:                                             {"keys", "create", "--models", "a,,b"},
		`"60" has no period`:                                                     {"keys", "create", "--requests", "60"},
		`the number must not be 0`:                                               {"keys", "create", "--requests", "0/m"},
		`"x" is not a number such as 60`:                                         {"keys", "create", "--tokens", "x/m"},
		`"fortnight" is not a period`:                                            {"keys", "create", "--quota", "5/fortnight"},
		`the period must be longer than 0`:                                       {"keys", "create", "--quota", "5/0s"},
		`"9999999d" is not a period`:                                             {"keys", "create", "--quota", "5/9999999d"},
		`"60" has no period, unlike 1M/month`:                                    {"keys", "create", "--quota", "60"},
		`"0usd" is not a nonzero amount such as 20usd`:                           {"keys", "create", "--quota", "5,0usd/month"},
		`"NaNusd" is not a nonzero amount such as 20usd`:                         {"keys", "create", "--quota", "NaNusd/month"},
		`"1,2" is more than a number of tokens and an amount`:                    {"keys", "create", "--quota", "1,2/month"},
		`"0" is not a burst`:                                                     {"keys", "create", "--requests", "60/m,burst=0"},
		`--by "week" is not day, total, model, key, account, user or label:NAME`: {"usage", "--by", "week"},
		`--by "label:"... is not day`:                                            {"usage", "--by", "label:"},
		`"project" is not a label such as project=search`:                        {"usage", "--label", "project"},
		`max-completion-tokens: the number must not be 0; none means no limit`:   {"keys", "create", "--max-completion-tokens", "0"},
		`concurrent: the number must not be 0; none means no limit`:              {"keys", "create", "--concurrent", "0"},
		`hash-password has no arguments but --generate`:                          {"hash-password", "secret"},
		`"tomorrow" is not a time`:                                               {"keys", "create", "--expires", "tomorrow"},
		`1999-01-01T00:00:00Z is not in the future`:                              {"keys", "create", "--expires", "1999-01-01"},
		`--interval "week" is not hour, day or month`:                            {"usage", "--by", "total", "--interval", "week"},
		`there are more than 10000 intervals: choose a shorter range`:            {"usage", "--by", "total", "--interval", "hour", "--from", "2020-01-01"},
		`--by day divides by days: use --by total with --interval`:               {"usage", "--account", "a", "--interval", "month"},
		`--order "size" is not cost, tokens, requests or a unit`:                 {"usage", "--by", "key", "--order", "size"},
		`"Nowhere" is not a time zone such as Europe/Berlin`:                     {"usage", "--by", "key", "--zone", "Nowhere"},
		`--csv and --json are two forms of the output`:                           {"usage", "--json", "--csv"},
		`--totals adds up the models`:                                            {"usage", "--by", "model", "--totals"},
		`"yesterday" is not a date`:                                              {"usage", "--account", "a", "--from", "yesterday"},
		`--from 2026-01-02 is after --to 2026-01-01`:                             {"usage", "--account", "a", "--from", "2026-01-02", "--to", "2026-01-01"},
		`no database: set LLMHTTP_DSN or --dsn`:                                  {"keys", "list", "--dsn", ""},
		`"many" is not a number`:                                                 {"keys", "create", "--concurrent", "many"},
	} {
		stdout, stderr, status := runProcess(t, "/nonexistent/db", args...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, "llmhttpctl: ", args)
		assert.Contains(t, stderr, want, args)
	}
}

func TestHelp(t *testing.T) {
	help, _, _ := runProcess(t, "", "help")
	assert.Contains(t, help, "llmhttpctl manages the API keys")
	assert.Contains(t, help, "The flag --dsn or the environment variable LLMHTTP_DSN names the database:\n")
	for _, args := range [][]string{{"--help"}, {"-h"}, {"-help"}} {
		stdout, stderr, status := runProcess(t, "", args...)
		assert.Equal(t, help, stdout)
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
	stdout, stderr, status := runProcess(t, "")
	assert.Empty(t, stdout)
	assert.Equal(t, help+"llmhttpctl: a command is missing\nRun \"llmhttpctl --help\" for help.\n", stderr)
	assert.Equal(t, exitUsage, status)

	commands := regexp.MustCompile(`(?m)^  llmhttpctl ((?:(?:keys|accounts|credit|completion) )?[\w-]+) \[flags\](.*?)  +(\w.*)$`).FindAllStringSubmatch(help, -1)
	assert.Len(t, commands, 25)
	for _, match := range commands {
		name, operands, usage := match[1], match[2], match[3]
		stdout, stderr, status := runProcess(t, "", append(strings.Fields(name), "--help")...)
		assert.Contains(t, stdout, "NAME:\n   llmhttpctl "+name+" - "+usage+"\n")
		assert.Contains(t, stdout, "USAGE:\n   llmhttpctl "+name+" [options]"+operands+"\n")
		if group, _, _ := strings.Cut(name, " "); !slices.Contains([]string{"completion", "hash-password", "version"}, group) {
			assert.Contains(t, stdout, "   --json\n      write a line of JSON")
			assert.Contains(t, stdout, "   --dsn database\n      the database [$LLMHTTP_DSN]\n")
		}
		assert.Empty(t, stderr)
		assert.Zero(t, status)
		again, _, _ := runProcess(t, "", append([]string{"help"}, strings.Fields(name)...)...)
		assert.Equal(t, stdout, again)
	}
	for _, args := range [][]string{{"keys", "--help"}, {"keys", "-h"}, {"keys", "help"}, {"help", "keys"}} {
		stdout, stderr, status := runProcess(t, "", args...)
		assert.Contains(t, stdout, "   rotate   give a key a new secret and print it once\n")
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
}

// The scripts of the shells ask the program with this flag what may follow.
func TestCompletion(t *testing.T) {
	for want, args := range map[string][]string{
		"keys:manage keys\n": {},
		"rotate:give a key a new secret and print it once\n":                                      {"keys"},
		"--user-tokens:the `limit` of tokens of each end user, such as 20k/min, or none\n":        {"accounts", "update", "--user-t"},
		"--dsn:the `database`\n--json:write a line of JSON for each key, account, entry or sum\n": {"keys", "show", "key_1", "-"},
		"zsh:print the script that completes commands and flags in zsh\n":                         {"completion"},
	} {
		stdout, stderr, status := runProcess(t, "/nonexistent/db", append(args, "--generate-shell-completion")...)
		assert.Contains(t, stdout, want, args)
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		stdout, stderr, status := runProcess(t, "", "completion", shell)
		assert.Contains(t, stdout, "--generate-shell-completion", shell)
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
}

// bash completes the word at the cursor, here the last one.
func TestCompletion_Bash(t *testing.T) {
	tier.Needs(t, "bash")
	dir := t.TempDir()
	program, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(dir, "llmhttpctl")))
	for want, words := range map[string]string{
		"keys":               "llmhttpctl ke",
		"show suspend":       "llmhttpctl accounts s",
		"--user-requests":    "llmhttpctl accounts update shop --user-r",
		"completion":         "llmhttpctl com",
		"bash fish pwsh zsh": `llmhttpctl completion ""`,
		"--interval":         "llmhttpctl usage --by key --in",
		"--newest":           "llmhttpctl credit list --n",
		"--generate":         "llmhttpctl hash-password --g",
		"--version":          "llmhttpctl --v",
	} {
		// The packet bash-completion of distributions has the function that the script calls.
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `source <(llmhttpctl completion bash)
_get_comp_words_by_ref() { :; }
COMP_WORDS=(`+words+`) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__llmhttpctl_bash_autocomplete
COMPREPLY=($(printf "%s\n" "${COMPREPLY[@]}" | sort)) && echo "= ${COMPREPLY[*]}"`)
		cmd.Env = append(newProcess("").Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		assert.Equal(t, "= "+want+"\n", string(out), words)
	}
}

func TestUsageErrors_ContainNoSecret(t *testing.T) {
	secret := llmhttp.NewSecret("sk-")
	const dsn = "postgres://u:hunter2@h/db"
	for _, args := range [][]string{
		{"keys", "revoke", secret},
		{"keys", "revoke", "key_x", secret},
		{"keys", "rotate", secret},
		{"keys", "update", secret, "--name", "x"},
		{"keys", "list", secret},
		{"keys", secret},
		{secret},
		{dsn},
		{"keys", dsn},
		{"keys", "list", dsn},
		{"usage", "--account", "a", dsn},
		{"keys", "create", dsn},
		{"keys", "list", "password=hunter2"},
	} {
		stdout, stderr, status := runProcess(t, "/nonexistent/db", args...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout)
		assert.NotContains(t, stderr, secret[len("sk-"):len("sk-")+8])
		assert.NotContains(t, stderr, "hunter2")
	}
}

func TestFailures_ContainNoPassword(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@127.0.0.1:1/db", "mysql://u:hunter2@h/db", "/nonexistent/db", "postgres://u:hunter2@h:x/"} {
		stdout, stderr, status := runProcess(t, dsn, "keys", "list")
		assert.Equal(t, exitFailed, status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "llmhttpctl: sqlstore: ")
		assert.NotContains(t, stderr, "hunter2")
	}
}

// TestLostSecret checks that a command whose output cannot be written names the
// key that has a new secret.
func TestLostSecret(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "llm.db")
	s, err := sqlstore.Open(t.Context(), dsn, nil)
	require.NoError(t, err)
	info, _, err := s.CreateKey(t.Context(), manage.KeyParams{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, args := range [][]string{
		{"keys", "create"},
		{"keys", "create", "--json"},
		{"keys", "rotate", info.ID},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close()) // writes fail with EPIPE
		cmd := newProcess(dsn, args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &stderr
		assert.Error(t, cmd.Run())
		require.NoError(t, w.Close())
		assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), args)
		assert.Regexp(t, `^llmhttpctl: key_\w{20} has a new secret, but it could not be written; rotate or revoke the key: .*pipe\n$`, stderr.String())
		if args[1] == "rotate" {
			assert.Contains(t, stderr.String(), info.ID)
		}
	}
}

func TestHashPassword(t *testing.T) {
	hash := func(password string) (string, error) {
		cmd := newProcess("", "hash-password")
		cmd.Stdin = strings.NewReader(password)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	text, err := hash("correct horse\n")
	require.NoError(t, err)
	h, err := passwordhash.Parse(text)
	require.NoError(t, err)
	assert.True(t, h.Matches("correct horse"))
	_, err = hash("short\n")
	assert.Error(t, err)

	stdout, stderr, status := runProcess(t, "", "hash-password", "--generate")
	assert.Zero(t, status)
	h, err = passwordhash.Parse(strings.TrimSpace(stdout))
	require.NoError(t, err)
	assert.True(t, h.Generated())
	assert.True(t, h.Matches(strings.TrimSpace(stderr)))
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-version"} {
		stdout, stderr, status := runProcess(t, "", arg)
		assert.Regexp(t, `^llmhttpctl \S+\n$`, stdout, arg)
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
	_, stderr, status := runProcess(t, "", "version", "2")
	assert.Contains(t, stderr, `unexpected argument "2"`)
	assert.Equal(t, exitUsage, status)
}

// Commands that use no database have help, too, and need none for it.
func TestHelp_WithoutADatabase(t *testing.T) {
	for command, want := range map[string]string{
		"hash-password": "   llmhttpctl hash-password [options] <FILE\n\nOPTIONS:\n   --generate\n      make a random password",
		"version":       "   llmhttpctl version [options]\n",
		"usage":         "--to date\n      the last day,",
	} {
		stdout, stderr, status := runProcess(t, "", command, "--help")
		assert.Contains(t, stdout, want, command)
		assert.Empty(t, stderr)
		assert.Zero(t, status)
	}
	stdout, stderr, status := runProcess(t, "", "hash-password", "--password=hunter2")
	assert.Empty(t, stdout)
	assert.NotContains(t, stderr, "hunter2")
	assert.Equal(t, exitUsage, status)
}

// The cost of what a key has used is that which was recorded.
func TestQuota_Cost(t *testing.T) {
	s, err := sqlstore.Open(t.Context(), ":memory:", nil)
	require.NoError(t, err)
	defer s.Close()
	quota := llmhttp.Quota{Cost: llm.USD(2), Per: -1}
	info, _, err := s.CreateKey(t.Context(), manage.KeyParams{Account: "acme", Limits: llmhttp.Limits{Quota: quota}})
	require.NoError(t, err)
	require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{
		ID: "1", Account: "acme", KeyID: info.ID, Time: time.Now(), Cost: llmhttp.Cost{Input: llm.USD(0.5), Other: llm.USD(0.25)},
	}))
	use, err := readQuotaUse(t.Context(), s, info.ID)
	require.NoError(t, err)
	assert.Equal(t, "0.75", use.UsedCost.String())
	assert.Equal(t, "1.25", use.LeftCost.String())
	assert.Equal(t, "2usd/all", use.Quota)
}

// A report that needs pruned records says from when they are kept.
func TestUsage_TellsWhatIsMissing(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "llm.db")
	s, err := sqlstore.Open(t.Context(), dsn, &sqlstore.Options{KeepRecords: -1})
	require.NoError(t, err)
	today := time.Now().UTC().Truncate(day)
	for i := range 5 {
		require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: fmt.Sprint(i), Account: "a", Model: "m", User: "u", Time: today.Add(-time.Duration(i) * day)}))
	}
	_, err = s.Prune(t.Context(), today.Add(-2*day))
	require.NoError(t, err)
	require.NoError(t, s.Close())

	stdout, stderr, status := runProcess(t, dsn, "usage", "--by", "account", "--status", "succeeded", "--csv")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "\na,m,3,")
	assert.Equal(t, "What this report needs is known from "+today.Add(-2*day).Format(time.DateOnly)+" on: older usage is missing.\n", stderr)
	stdout, stderr, _ = runProcess(t, dsn, "usage", "--by", "account", "--csv")
	assert.Contains(t, stdout, "\na,m,5,")
	assert.Empty(t, stderr)
}
