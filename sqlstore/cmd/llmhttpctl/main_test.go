package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/sqlstore"
)

var update = flag.Bool("update", false, "write what the command replied to testdata")

// asCommand makes the test binary the command.
const asCommand = "LLMHTTPCTL_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	status := m.Run()
	servertest.Close()
	os.Exit(status)
}

// process returns a process of the command.
func process(dsn string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "LLMHTTP_DSN="+dsn, "GORACE=atexit_sleep_ms=0") // a second each
	return cmd
}

// ctl runs the command and returns what it wrote and its exit status.
func ctl(t *testing.T, dsn string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := process(dsn, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		require.IsType(t, &exec.ExitError{}, e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// A transcript is of commands and what came of them. What differs from run to
// run is masked with something of the same width, for the tables.
type transcript struct {
	dsn   string
	ids   []string
	shown string
}

var (
	idPattern     = regexp.MustCompile(`key_[a-z2-7]{20}`)
	secretPattern = regexp.MustCompile(`sk-[\w-]{43}`)
	prefixPattern = regexp.MustCompile(`sk-[\w-]{8}`) // of secrets that are masked already, nothing matches
	timePattern   = regexp.MustCompile(`2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

func (x *transcript) mask(s string) string {
	s = idPattern.ReplaceAllStringFunc(s, func(id string) string {
		for i, known := range x.ids {
			if id == known {
				return fmt.Sprintf("key_%020d", i+1)
			}
		}
		x.ids = append(x.ids, id)
		return fmt.Sprintf("key_%020d", len(x.ids))
	})
	s = secretPattern.ReplaceAllString(s, "sk-"+strings.Repeat("*", 43))
	s = prefixPattern.ReplaceAllString(s, "sk-********")
	return timePattern.ReplaceAllStringFunc(s, func(s string) string {
		if strings.HasPrefix(s, "2999") || strings.HasPrefix(s, "2026-03") {
			return s
		}
		return "YYYY-MM-DDThh:mm:ssZ"
	})
}

// run runs a command, in which #1 is the ID that was shown first.
func (x *transcript) run(t *testing.T, args ...string) {
	t.Helper()
	real := make([]string, len(args))
	for i, arg := range args {
		for k := len(x.ids); k > 0; k-- {
			arg = strings.ReplaceAll(arg, fmt.Sprint("#", k), x.ids[k-1])
		}
		real[i] = arg
	}
	stdout, stderr, status := ctl(t, x.dsn, real...)
	x.shown += fmt.Sprintf("$ llmhttpctl %s\n%s", strings.Join(args, " "), x.mask(stdout))
	for line := range strings.Lines(x.mask(stderr)) {
		x.shown += "! " + line
	}
	x.shown += fmt.Sprintf("= %d\n\n", status)
}

func TestTranscript(t *testing.T) {
	for name, dsn := range map[string]func() string{
		"SQLite":     func() string { return filepath.Join(t.TempDir(), "llm.db") },
		"PostgreSQL": func() string { return servertest.Postgres(t, servertest.Args("-c", "fsync=off")).DSN() },
	} {
		t.Run(name, func(t *testing.T) {
			x := &transcript{dsn: dsn()}
			x.run(t, "keys", "list")
			x.run(t, "keys", "create")
			x.run(t, "keys", "create", "--account", "acme", "--name", "for the CI", "--scopes", "chat,models", "--models", "small-*,large", "--expires", "2999-01-31",
				"--requests", "60/m,burst=10", "--tokens", "20000/90s", "--quota", "1000000/30d", "--concurrent", "4")
			x.run(t, "keys", "create", "--json", "--account=acme", "--scopes=none", "--models=all", "--requests=-1/h", "--name", "\x1b[31mred\n")
			x.run(t, "keys", "list")
			x.run(t, "keys", "list", "--account", "acme", "--json")
			x.run(t, "keys", "list", "--limit", "2")
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

			s, err := sqlstore.Open(t.Context(), x.dsn, &sqlstore.Options{KeepRecords: -1})
			require.NoError(t, err)
			start := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
			for i := range 50 {
				require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{
					ID: fmt.Sprint(i), Account: "acme", Model: []string{"large", "small\t"}[i%2], Time: start.Add(time.Duration(i) * time.Hour),
					Usage: llmhttp.Usage{PromptTokens: 10 * i, CompletionTokens: i}, Images: i % 3,
				}))
			}
			require.NoError(t, s.Close())
			x.run(t, "usage", "--account", "acme", "--from", "2026-03-01", "--to", "2026-03-16")
			x.run(t, "usage", "--account", "acme", "--from", "2026-03-01", "--to", "2026-04-01", "--total")
			x.run(t, "usage", "--account", "acme", "--to", "2026-03-15", "--json")
			x.run(t, "usage", "--account", "nobody")

			golden, err := os.ReadFile("testdata/transcript.txt")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o777))
				require.NoError(t, os.WriteFile("testdata/transcript.txt", []byte(x.shown), 0o666))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, string(golden), x.shown)
		})
	}
}

func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		`a command is missing`:                                {},
		`a command is missing after keys`:                     {"keys"},
		`there is no command "keys drop"`:                     {"keys", "drop"},
		`there is no command "nonsense"`:                      {"nonsense", "--json"},
		`flag provided but not defined: -nonsense`:            {"usage", "--nonsense"},
		`unexpected argument "x"`:                             {"keys", "list", "x"},
		`unexpected argument "y"`:                             {"keys", "create", "--json", "y"},
		`unexpected argument "--json"`:                        {"usage", "--account", "a", "--", "--json"},
		`the limit is negative`:                               {"keys", "list", "--limit", "-1"},
		`the ID of one key is expected`:                       {"keys", "rotate"},
		`the ID of a key begins with key_: "llmhttpctl keys`:  {"keys", "revoke", "key_x", ""},
		`flags come after the command`:                        {"--json", "keys", "list"},
		`the ID of a key is expected`:                         {"keys", "revoke"},
		`no flag says what to change`:                         {"keys", "update", "key_x"},
		`"chats" is none of [chat`:                            {"keys", "create", "--scopes", "chat,chats"},
		`an empty word`:                                       {"keys", "create", "--models", "a,,b"},
		`"60" has no period`:                                  {"keys", "create", "--requests", "60"},
		`"0" is no number other than 0`:                       {"keys", "create", "--requests", "0/m"},
		`"x" is no number other than 0`:                       {"keys", "create", "--tokens", "x/m"},
		`"1fortnight" is no duration`:                         {"keys", "create", "--quota", "5/fortnight"},
		`the period must be longer than 0`:                    {"keys", "create", "--quota", "5/0s"},
		`"9999999d" is no number of days`:                     {"keys", "create", "--quota", "5/9999999d"},
		`"0" is no burst`:                                     {"keys", "create", "--requests", "60/m,burst=0"},
		`"tomorrow" is no time`:                               {"keys", "create", "--expires", "tomorrow"},
		`1999-01-01T00:00:00Z is not in the future`:           {"keys", "create", "--expires", "1999-01-01"},
		`--account is missing`:                                {"usage"},
		`"yesterday" is no date`:                              {"usage", "--account", "a", "--from", "yesterday"},
		`no day from 2026-01-02 up to`:                        {"usage", "--account", "a", "--from", "2026-01-02", "--to", "2026-01-02"},
		`no database: set LLMHTTP_DSN or --dsn`:               {"keys", "list", "--dsn", ""},
		`invalid value "many" for flag -concurrent: parse er`: {"keys", "create", "--concurrent", "many"},
	} {
		stdout, stderr, status := ctl(t, "/nonexistent/db", args...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, "llmhttpctl: ", args)
		assert.Contains(t, stderr, want, args)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"keys", "-h"}, {"keys", "help"}} {
		stdout, stderr, status := ctl(t, "", args...)
		assert.Equal(t, []any{help, "", 0}, []any{stdout, stderr, status})
	}
	for _, line := range regexp.MustCompile(`(?m)^  llmhttpctl ((?:keys )?\w+)`).FindAllStringSubmatch(help, -1) {
		stdout, stderr, status := ctl(t, "", append(strings.Fields(line[1]), "--help")...)
		assert.Contains(t, stdout, "Usage: llmhttpctl "+line[1]+" [flags]")
		assert.Contains(t, stdout, "  --json\n")
		assert.Equal(t, []any{"", 0}, []any{stderr, status})
	}
}

// A secret or a DSN in the wrong place is not told.
func TestMisplacedSecret(t *testing.T) {
	secret := llmhttp.NewSecret("sk-")
	const dsn = "postgres://u:hunter2@h/db"
	for _, args := range [][]string{
		{"keys", "revoke", secret}, {"keys", "revoke", "key_x", secret}, {"keys", "rotate", secret}, {"keys", "update", secret, "--name", "x"},
		{"keys", "list", secret}, {"keys", secret}, {secret}, {dsn}, {"keys", dsn}, {"keys", "list", dsn}, {"usage", "--account", "a", dsn}, {"keys", "create", dsn}, {"keys", "list", "password=hunter2"},
	} {
		stdout, stderr, status := ctl(t, "/nonexistent/db", args...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout)
		assert.NotContains(t, stderr, secret[len("sk-"):len("sk-")+8])
		assert.NotContains(t, stderr, "hunter2")
	}
}

// Where what was done cannot be written, the status says so, and the error what
// that was.
func TestNoOutput(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "llm.db")
	s, err := sqlstore.Open(t.Context(), dsn, nil)
	require.NoError(t, err)
	info, _, err := s.CreateKey(t.Context(), sqlstore.KeyParams{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"keys", "create"}, `^llmhttpctl: key_\w{20} has a new secret, which cannot be shown, so rotate or revoke it: .*pipe\n$`},
		{[]string{"keys", "create", "--json"}, `^llmhttpctl: key_\w{20} has a new secret, which cannot be shown, so rotate or revoke it: .*pipe\n$`},
		{[]string{"keys", "rotate", info.ID}, `^llmhttpctl: ` + info.ID + ` has a new secret, which cannot be shown, so rotate or revoke it: .*pipe\n$`},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close()) // as if who was to read it had ended
		cmd := process(dsn, test.args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &stderr
		assert.Error(t, cmd.Run())
		require.NoError(t, w.Close())
		assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), test.args)
		assert.Regexp(t, test.want, stderr.String())
	}
}

// What fails tells no password.
func TestFailure(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@127.0.0.1:1/db", "mysql://u:hunter2@h/db", "/nonexistent/db", "postgres://u:hunter2@h:x/"} {
		stdout, stderr, status := ctl(t, dsn, "keys", "list")
		assert.Equal(t, exitFailed, status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "llmhttpctl: sqlstore: ")
		assert.NotContains(t, stderr, "hunter2")
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]llmhttp.Rate{
		"60/m":             {N: 60, Per: time.Minute},
		"60/m,burst=10":    {N: 60, Per: time.Minute, Burst: 10},
		"5/s":              {N: 5, Per: time.Second},
		"7/90m":            {N: 7, Per: 90 * time.Minute},
		"1000000/30d":      {N: 1_000_000, Per: 30 * 24 * time.Hour},
		"-1/h":             {N: -1, Per: time.Hour},
		"1/1.5s":           {N: 1, Per: 1500 * time.Millisecond},
		"1/106751d":        {N: 1, Per: 106751 * 24 * time.Hour},
		"1/1ns,burst=9999": {N: 1, Per: 1, Burst: 9999},
	} {
		r, err := parseRate(text)
		require.NoError(t, err)
		assert.Equal(t, want, r)
		assert.Equal(t, text, formatRate(r))
	}
	assert.Equal(t, "3/m", formatRate(llmhttp.Rate{N: 3}))
	assert.Empty(t, formatRate(llmhttp.Rate{Per: time.Hour}))

	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"never": {}, "2026-03-15": now.Add(12 * time.Hour), "2026-03-14T13:00:00+01:00": {}, "2026-03-14T14:00:00+01:00": now.Add(time.Hour), "2d": now.Add(48 * time.Hour), "h": now.Add(time.Hour),
	} {
		got, err := parseExpiry(text, now)
		if text == "2026-03-14T13:00:00+01:00" {
			assert.ErrorContains(t, err, "not in the future")
			continue
		}
		require.NoError(t, err)
		assert.True(t, want.Equal(got), text)
	}
	for _, text := range []string{"all", "none", "a", "a,b*"} {
		list, err := parseList[string](text)
		require.NoError(t, err)
		assert.Equal(t, text, formatList(list))
	}
}
