package llmfake_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

// t stands for the *testing.T of a test. Its failures are printed.
var t = &exampleT{}

type exampleT struct{ cleanups []func() }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Name() string                      { return "TestExample" }
func (t *exampleT) Logf(format string, args ...any)   {}
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Failed() bool                      { return false }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Setenv(key, value string)          { fmt.Println(key) }
func (t *exampleT) Output() io.Writer                 { return io.Discard }

// program is the program that is tested: it sends a text to a model and returns the reply, or
// what went wrong. It would use an SDK.
func program(srv *llmfake.Server, text string, members ...string) string {
	body := `{"model": "gpt-4o", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ` +
		fmt.Sprintf("%q}]%s}", text, strings.Join(members, ""))
	r, err := http.NewRequest("POST", "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer sk-test")
	r.Header.Set("Content-Type", "application/json")
	res, err := srv.Client().Do(r)
	if err != nil {
		return "no response"
	}
	defer res.Body.Close()
	var reply llm.ChatResponse
	b, err := io.ReadAll(res.Body)
	switch {
	case res.StatusCode != 200:
		return strings.TrimSpace(res.Status + " " + res.Header.Get("Retry-After"))
	case err != nil:
		return err.Error()
	case json.Unmarshal(b, &reply) != nil:
		return "malformed: " + string(b)
	}
	m := reply.Choices[0].Message
	for _, call := range m.ToolCalls {
		return call.Function.Name + "(" + call.Function.Arguments + ")"
	}
	return m.Content.Text()
}

func Example() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains."))
	fmt.Println(program(srv, "Rain?"))
	srv.Request(0).WantModel("gpt-4o").WantUserText("Rain?")
	// Output: It rains.
}

// The simulated model replies until the test sets a reply.
func ExampleNewServer() {
	srv := llmfake.NewServer(t)
	fmt.Println(program(srv, "Hello there!"))
	fmt.Println(program(srv, "Rain?", `, "tools": [{"type": "function", "function": {"name": "forecast", "parameters":
		{"type": "object", "properties": {"days": {"type": "integer", "minimum": 3}}, "required": ["days"]}}}]`))
	// Output:
	// Hello there!
	// forecast({"days":3})
}

// Replies in a queue are given once each. The test fails if one is left, and if one is missing.
func ExampleServer_Reply() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("one"), llmfake.Text("two"))
	fmt.Println(program(srv, "Count."))
	fmt.Println(program(srv, "Go on."))
	program(srv, "More!")
	// Output:
	// one
	// two
	// llmfake: unexpected request 3: POST /v1/chat/completions, model "gpt-4o", user "More!"
	//     the replies for any request were given: Text("one") to request 1, Text("two") to request 2
}

func ExampleServer_When() {
	srv := llmfake.NewServer(t)
	srv.When(llmfake.UserText("weather"), llmfake.Turn(1)).Reply(llmfake.Call("forecast", map[string]string{"city": "Bergen"}))
	srv.When(llmfake.HasToolResult("forecast", "rain")).Always(llmfake.Text("Take an umbrella."))
	srv.Always(llmfake.Text("I know only the weather."))
	fmt.Println(program(srv, "How is the weather?"))
	fmt.Println(program(srv, "Who are you?"))
	// Output:
	// forecast({"city":"Bergen"})
	// I know only the weather.
}

func ExampleMatch() {
	srv := llmfake.NewServer(t)
	isShort := llmfake.Match("a short question", func(r *llmfake.Request) bool { return len(r.UserText()) < 10 })
	srv.When(isShort).Always(llmfake.Text("Yes."))
	fmt.Println(program(srv, "Rain?"))
	// Output: Yes.
}

func ExampleServer_Requests() {
	srv := llmfake.NewServer(t)
	program(srv, "Rain?")
	for _, r := range srv.Requests() {
		fmt.Println(r.Protocol, r.Model, r.Stream, r.Status)
		fmt.Println(strings.Join(r.Transcript(), "\n"))
	}
	// Output:
	// chat gpt-4o false 200
	// system: Be brief.
	// user: Rain?
}

// Assertions quote what differs.
func ExampleRequest_WantJSON() {
	srv := llmfake.NewServer(t)
	program(srv, "Rain?", `, "temperature": 0.7`)
	srv.Request(0).
		WantModel("gpt-4o").
		WantSystem("Be brief.").
		WantJSON("messages[1].content", "Rain?").
		WantJSON("temperature", 0).
		WantJSON("tools", nil)
	// Output:
	// llmfake: request 1: temperature differs
	//     got:  0.7
	//     want: 0
}

func ExampleRequest_WantMessages() {
	srv := llmfake.NewServer(t)
	program(srv, "Rain?")
	srv.Request(0).WantMessages("system: Be brief.", "user: Snow?")
	// Output:
	// llmfake: request 1: the messages differ (- got, + want):
	//       system: Be brief.
	//     - user: Rain?
	//     + user: Snow?
}

// For programs and SDKs that read the environment.
func ExampleServer_Setenv() {
	srv := llmfake.NewServer(t)
	srv.Setenv()
	defer srv.Close()
	// Output:
	// LLMFAKE_URL
	// OPENAI_BASE_URL
	// OPENAI_API_BASE
	// ANTHROPIC_BASE_URL
	// NO_PROXY
	// no_proxy
	// OPENAI_API_KEY
	// ANTHROPIC_API_KEY
}

// In a bubble, waits and retries take no time.
func ExampleServer_Client() {
	_ = func(t *testing.T) { // a test
		synctest.Test(t, func(t *testing.T) {
			srv := llmfake.NewServer(t)
			srv.Reply(llmfake.RateLimited(time.Hour), llmfake.Wait(time.Minute).Text("It rains."))
			client := srv.Client() // for an SDK, such as openai.NewClient(option.WithHTTPClient(srv.Client()))
			_ = client
		})
	}
}

// Two turns of an agent: the model calls a tool, and replies when it has the result.
func ExampleReply_Call() {
	srv := llmfake.NewServer(t)
	srv.Reply(
		llmfake.Reason("The user asks for the weather.").Text("I will look.").Call("forecast", map[string]string{"city": "Bergen"}),
		llmfake.Text("Take an umbrella.").Usage(30, 4),
	)
	fmt.Println(program(srv, "How is the weather?"))
	fmt.Println(program(srv, "It rains.")) // an agent sends a message with the result
	// Output:
	// forecast({"city":"Bergen"})
	// Take an umbrella.
}

// Wait delays the first token, and Words each word. In a bubble of testing/synctest, see
// [llmfake.Server.Client], delays take no time and are exact.
func ExampleReply_Words() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Wait(20*time.Millisecond).Words("It rains.", 10*time.Millisecond))
	began := time.Now()
	fmt.Println(program(srv, "Rain?"))
	fmt.Println(time.Since(began) >= 40*time.Millisecond)
	// Output:
	// It rains.
	// true
}

// The token limit of a request cuts a reply, as a model would.
func ExampleReply_length() {
	srv := llmfake.NewServer(t)
	srv.Always(llmfake.Text("It rains in Bergen."))
	fmt.Println(program(srv, "Rain?", `, "max_completion_tokens": 2`))
	fmt.Println(program(srv, "Rain?", `, "stop": " in"`))
	// Output:
	// It rains
	// It rains
}

func ExampleJSON() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.JSON(struct {
		City string `json:"city"`
		Days int    `json:"days"`
	}{"Bergen", 3}))
	fmt.Println(program(srv, "Where?"))
	// Output: {"city":"Bergen","days":3}
}

// A reply that depends on the request.
func ExampleFunc() {
	srv := llmfake.NewServer(t)
	srv.Always(llmfake.Func(func(r *llmfake.Request) llmfake.Reply {
		return llmfake.Text(strings.ToUpper(r.UserText()))
	}))
	fmt.Println(program(srv, "Rain?"))
	// Output: RAIN?
}

func ExampleChoices() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Choices(llmfake.Text("Yes."), llmfake.Text("No.")).Usage(10, 4))
	fmt.Println(program(srv, "Rain?", `, "n": 2`))
	// Output: Yes.
}

func ExampleRateLimited() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.RateLimited(2*time.Second), llmfake.Overloaded(), llmfake.HTML(502), llmfake.Cut())
	for range 4 {
		fmt.Println(program(srv, "Rain?"))
	}
	// Output:
	// 429 Too Many Requests 2
	// 503 Service Unavailable
	// 502 Bad Gateway
	// no response
}

func ExampleReply_Cut() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains").Cut())
	fmt.Println(program(srv, "Rain?"))
	// Output: unexpected EOF
}

// Rewrite makes replies that are wrong in any other way.
func ExampleReply_Rewrite() {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("It rains.").Rewrite(func(event []byte) []byte {
		return []byte(strings.ReplaceAll(string(event), "rains", "snows"))
	}))
	fmt.Println(program(srv, "Rain?"))
	// Output: It snows.
}

func ExampleServer_Limit() {
	srv := llmfake.NewServer(t)
	srv.Limit(llmhttp.Limits{Requests: llmhttp.PerMinute(1)})
	fmt.Println(program(srv, "Rain?"))
	fmt.Println(program(srv, "Rain?"))
	// Output:
	// Rain?
	// 429 Too Many Requests 60
}

// With the same seed, the same requests fail.
func ExampleServer_Chaos() {
	srv := llmfake.NewServer(t)
	srv.Chaos(llmfake.Chaos{Seed: 4, ServerError: .3, Cut: .3})
	for i := range 4 {
		fmt.Println(program(srv, fmt.Sprint("Rain ", i)))
	}
	// Output:
	// Rain 0
	// 500 Internal Server Error
	// no response
	// no response
}

// A load profile: a server whose replies take their time, and of whose requests some fail.
func ExampleServer_Pace() {
	srv := llmfake.NewServer(t)
	srv.Pace(llmfake.Pace{Seed: 1, FirstToken: 20 * time.Millisecond, TokensPerSecond: 200, Jitter: .2})
	srv.Chaos(llmfake.Chaos{Seed: 4, Overloaded: .3})
	began := time.Now()
	for i := range 4 {
		fmt.Println(program(srv, fmt.Sprint("Rain ", i)))
	}
	fmt.Println(time.Since(began) >= 3*16*time.Millisecond)
	// Output:
	// Rain 0
	// 503 Service Unavailable
	// Rain 2
	// Rain 3
	// true
}

func ExampleServer_Load() {
	srv := llmfake.NewServer(t)
	file := filepath.Join(os.TempDir(), "replies.yaml")
	defer os.Remove(file)
	os.WriteFile(file, []byte("rules:\n- when: {user: weather}\n  always: {text: It rains.}\n"), 0o600)
	srv.Load(file)
	fmt.Println(program(srv, "How is the weather?"))
	// Output: It rains.
}

// The cassette is testdata/llmfake/NAME.txtar. LLMFAKE_UPDATE=1 records it.
func ExampleNewReplay() {
	srv := llmfake.NewReplay(t, nil)
	fmt.Println(program(srv, "Rain?"))
	srv.Close()
	// Output: It rains.
}

// A Server records what a real server replies, and then replays that. Here another Server takes the
// place of the real one.
func ExampleReplayOptions() {
	real := llmfake.NewServer(t)
	real.Reply(llmfake.Text("It rains."))
	file := filepath.Join(os.TempDir(), "llmfake-example.txtar")
	defer os.Remove(file)

	recorder := llmfake.NewReplay(t, &llmfake.ReplayOptions{File: file, Record: true, OpenAI: real.OpenAIURL()})
	fmt.Println(program(recorder, "Rain?"))
	recorder.Close() // writes the cassette, as the end of the test does
	real.Close()

	replay := llmfake.NewReplay(t, &llmfake.ReplayOptions{File: file})
	fmt.Println(program(replay, "Rain?"))
	replay.Close()
	cassette, _ := os.ReadFile(file)
	fmt.Println(strings.Contains(string(cassette), "sk-test"), strings.Contains(string(cassette), "127.0.0.1"))
	// Output:
	// It rains.
	// It rains.
	// false false
}
