package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/llmfake"
)

// TestMain makes the test binary a program that asks a model, if CHILD is set.
func TestMain(m *testing.M) {
	if texts := os.Getenv("CHILD"); texts != "" {
		for text := range strings.SplitSeq(texts, ",") {
			status, body, err := chat(os.Getenv("OPENAI_BASE_URL"), text)
			fmt.Println(status, body, err)
		}
		if os.Getenv("CHILD_FAILS") != "" {
			os.Exit(7)
		}
		return
	}
	os.Exit(m.Run())
}

// chat asks a model and returns the text of its reply.
func chat(base, text string) (int, string, error) {
	body := fmt.Sprintf(`{"model":"gpt-x","messages":[{"role":"user","content":%q}]}`, text)
	r, err := http.NewRequest("POST", base+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY")+"x")
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&reply); err != nil || len(reply.Choices) == 0 {
		return res.StatusCode, "", err
	}
	return res.StatusCode, reply.Choices[0].Message.Content, nil
}

// runChild runs the program with a child that asks the given texts.
func runChild(t *testing.T, texts string, args ...string) (status int, out, errs string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("CHILD", texts)
	var stdout, stderr proctest.Buffer
	status = run(t.Context(), append(args, "--", self), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

func TestRun_Child(t *testing.T) {
	status, out, errs := runChild(t, "Hello there")
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, "200 Hello there <nil>\n", out)

	script := write(t, "replies.yaml", "replies:\n  - text: one\n  - text: two\n")
	status, out, errs = runChild(t, "a,b", script)
	assert.Equal(t, 0, status, errs)
	assert.Equal(t, "200 one <nil>\n200 two <nil>\n", out)

	status, _, errs = runChild(t, "a,b,c", script)
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, `llmfake: unexpected request 3: POST /v1/chat/completions, model "gpt-x", user "c"`)

	status, _, errs = runChild(t, "a", "-v", script)
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, `1 reply was not asked for:`)
	assert.Contains(t, errs, `Text("two"), set at replies.yaml`)
	assert.Contains(t, errs, "msg=request")

	t.Setenv("CHILD_FAILS", "1")
	status, _, _ = runChild(t, "Hi")
	assert.Equal(t, 7, status)
}

// llmfake replies.yaml -- program
func Example() {
	dir, err := os.MkdirTemp("", "llmfake")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "replies.yaml")
	rules := "rules:\n- when: {user: weather}\n  replies: [{text: It rains.}]\nalways: {text: I know only the weather.}\n"
	if err := os.WriteFile(script, []byte(rules), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("CHILD", "How is the weather?,Who are you?") // the program asks this
	defer os.Unsetenv("CHILD")

	status := run(context.Background(), []string{script, "--", os.Args[0]}, os.Stdout, os.Stderr)

	fmt.Println("exit status", status)
	// Output:
	// 200 It rains. <nil>
	// 200 I know only the weather. <nil>
	// exit status 0
}

// A program that listens on all addresses tells one that others can connect to.
func TestRun_AllAddresses(t *testing.T) {
	var out, errs proctest.Buffer
	status := run(t.Context(), []string{"-addr", ":0", "--", "sh", "-c", `echo "$LLMFAKE_URL"`}, &out, &errs)
	assert.Equal(t, 0, status, errs.String())
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+\n$`, out.String())
}

func TestRun_RecordAndReplay(t *testing.T) {
	real := llmfake.NewServer(t)
	real.Reply(llmfake.Text("It rains."))
	file := filepath.Join(t.TempDir(), "cassette.txtar")
	t.Setenv("OPENAI_API_KEY", "sk-the-real-key")
	status, out, errs := runChild(t, "Rain?", "-record", file, "-openai", real.OpenAIURL())
	assert.Equal(t, 0, status, errs)
	assert.Contains(t, out, "It rains.")
	assert.Equal(t, "Bearer sk-the-real-key", real.Request(0).Header.Get("Authorization"))
	status, out, errs = runChild(t, "Rain?", "-replay", file)
	assert.Equal(t, 0, status, errs)
	assert.Contains(t, out, "It rains.")
	status, _, errs = runChild(t, "Snow?", "-replay", file)
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, "is not in the cassette")
}

func TestRun_Usage(t *testing.T) {
	broken := write(t, "broken.yaml", "replys: []\n")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-h"}, 0, "usage: llmfake [flags] [script] [-- command arguments...]"},
		{[]string{"-nope"}, 2, "not defined"},
		{[]string{"a", "b"}, 2, "more than one script"},
		{[]string{"-record", "a", "-replay", "b"}, 2, "exclude each other"},
		{[]string{"-replay", "b", "script"}, 2, "a script has no effect"},
		{[]string{"-replay", "missing.txtar"}, 1, "there is no cassette missing.txtar"},
		{[]string{"missing.yaml"}, 1, "no such file"},
		{[]string{broken}, 1, `broken.yaml: there is no member "replys"`},
		{[]string{"-addr", "nowhere:x"}, 1, "llmfake: listen"},
		{[]string{"--"}, 2, "there is no command after --"},
		{[]string{"--", "/no/such/program"}, 1, "/no/such/program"},
	} {
		var out, errs proctest.Buffer
		assert.Equal(t, c.status, run(t.Context(), c.args, &out, &errs), "%q: %s", c.args, &errs)
		assert.Contains(t, errs.String(), c.want)
	}
}

// start runs the program until stop is called, which returns the exit status.
func start(t *testing.T, args ...string) (url string, errs *proctest.Buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out proctest.Buffer
	errs = &proctest.Buffer{}
	done := make(chan int, 1)
	go func() { done <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), &out, errs) }()
	stop = sync.OnceValue(func() int { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	return proctest.AwaitURL(t, &out), errs, stop
}

// The script is read again when it has changed. One that is malformed is not used.
func TestRun_Reload(t *testing.T) {
	t.Parallel()
	script := write(t, "replies.json", `{"always": {"text": "one"}}`)
	url, errs, stop := start(t, script)
	ask := func() string {
		_, text, err := chat(url+"/v1", "Hi")
		require.NoError(t, err)
		return text
	}
	change := func(text string, age time.Duration) {
		require.NoError(t, os.WriteFile(script, []byte(text), 0o644))
		at := time.Now().Add(age)
		require.NoError(t, os.Chtimes(script, at, at))
	}
	assert.Equal(t, "one", ask())
	change(`{"always": {"text": "two"}}`, time.Minute)
	assert.Equal(t, "two", ask())
	change(`{"always": `, 2*time.Minute)
	assert.Equal(t, "two", ask())
	assert.Contains(t, errs.String(), "the script was not read again")
	change(`{"replies": [{"text": "three"}]}`, 3*time.Minute)
	assert.Equal(t, "three", ask())
	assert.Equal(t, 0, stop())
}

// Tests in other languages set the script and read the requests over HTTP.
func TestRun_Control(t *testing.T) {
	t.Parallel()
	url, _, stop := start(t)
	do := func(method, path, contentType, body string) (int, string) {
		r, err := http.NewRequest(method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", contentType)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(b)
	}
	status, text := do("PUT", "/llmfake/script", "application/json", `{"replies": [{"txt": "x"}]}`)
	assert.Equal(t, 400, status)
	assert.Contains(t, text, `there is no step "txt"`)
	status, _ = do("PUT", "/llmfake/script", "application/yaml", "replies:\n- text: one\n- text: two\n")
	assert.Equal(t, 204, status)
	_, reply, err := chat(url+"/v1", "Hi")
	require.NoError(t, err)
	assert.Equal(t, "one", reply)

	_, text = do("GET", "/llmfake/requests", "", "")
	var requests []map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &requests))
	require.Len(t, requests, 1)
	assert.Equal(t, "Hi", requests[0]["user"])
	assert.Equal(t, []any{"user: Hi"}, requests[0]["messages"])
	assert.Equal(t, "gpt-x", requests[0]["body"].(map[string]any)["model"])
	assert.NotContains(t, text, "Bearer")
	_, text = do("GET", "/llmfake/problems", "", "")
	assert.Equal(t, "[]\n", text)
	_, text = do("GET", "/llmfake/problems?left=1", "", "")
	assert.Contains(t, text, "was not asked for")

	status, _ = do("PUT", "/llmfake/script", "application/json", `{"replies": [{"text": "x"}]}`)
	assert.Equal(t, 204, status)
	_, text = do("GET", "/llmfake/requests", "", "")
	assert.Equal(t, "[]\n", text)
	assert.Equal(t, 1, stop())
}

// The command of llmfake/README.md for Python runs. That for Node.js is in clients/node/llmfake.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	tier.Needs(t, "Python")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "\nllmfake replies.yaml -- python3 -m unittest\n")
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	var out, errs proctest.Buffer
	status := run(t.Context(), []string{"testdata/python/replies.yaml", "--", python, "-m", "unittest", "discover", "-s", "testdata/python"}, &out, &errs)
	assert.Equal(t, 0, status, "%s%s", &out, &errs)
	assert.Contains(t, errs.String(), "OK")
}

// Requests that come at the same time read a script that has changed once, so that each reply is
// given once.
func TestRun_ReloadOnce(t *testing.T) {
	t.Parallel()
	const requests = 20
	script := write(t, "replies.json", `{"always": {"text": "old"}}`)
	url, errs, stop := start(t, script)
	var list []string
	for i := range requests {
		list = append(list, fmt.Sprintf(`{"text": "new %d"}`, i))
	}
	require.NoError(t, os.WriteFile(script, []byte(`{"replies": [`+strings.Join(list, ",")+`]}`), 0o644))
	replies := make(chan string, requests)
	for range requests {
		go func() {
			_, text, err := chat(url+"/v1", "Hi")
			replies <- fmt.Sprint(text, err)
		}()
	}
	seen := map[string]bool{}
	for range requests {
		seen[<-replies] = true
	}
	assert.Len(t, seen, requests, "%v", seen)
	assert.Equal(t, 1, strings.Count(errs.String(), "read "+script+" again"), errs)
	assert.Equal(t, 0, stop(), errs)
}

// A program that is interrupted ends, also if a reply hangs. A recording of a command that has failed is not written.
func TestRun_Ends(t *testing.T) {
	url, _, stop := start(t, write(t, "replies.yaml", "always: {hang: true}\n"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		chat(url+"/v1", "Hi")
	}()
	require.Eventually(t, func() bool {
		res, err := http.Get(url + "/llmfake/requests")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return err == nil && strings.Contains(string(b), `"user":"Hi"`)
	}, 10*time.Second, time.Millisecond)
	assert.Equal(t, 0, stop())
	<-done

	real := llmfake.NewServer(t)
	file := filepath.Join(t.TempDir(), "cassette.txtar")
	t.Setenv("CHILD_FAILS", "1")
	status, _, errs := runChild(t, "Rain?", "-record", file, "-openai", real.OpenAIURL())
	assert.Equal(t, 7, status)
	assert.Contains(t, errs, "cassette.txtar was not written")
	assert.NoFileExists(t, file)
}

// The commands of the Dockerfile build the program from the repository, and it runs with nothing
// but the binary.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	field := func(instruction string) string {
		m := regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(string(text), -1)
		require.Len(t, m, 1, instruction)
		return m[0][1]
	}
	dir := t.TempDir()
	build := exec.Command("sh", "-c", strings.Replace(field("RUN"), "-o /llmfake ", "-o "+filepath.Join(dir, "llmfake")+" ", 1))
	build.Dir = "../../.." // as WORKDIR, to which the repository is copied
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	var entrypoint []string
	require.NoError(t, json.Unmarshal([]byte(field("ENTRYPOINT")), &entrypoint))
	script := write(t, "replies.yaml", "replies: [{text: It rains.}]\n")
	args := append(entrypoint[1:], script, "--", os.Args[0])
	for i, arg := range args {
		args[i] = strings.Replace(arg, "0.0.0.0:8484", "127.0.0.1:0", 1)
	}
	program := exec.Command(filepath.Join(dir, entrypoint[0]), args...)
	program.Env = []string{"CHILD=Rain?"}
	out, err = program.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "200 It rains. <nil>\n", string(out))
	assert.Contains(t, string(text), "docker build -f llmfake/Dockerfile -t llmfake .")
}
