package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/upstream"
)

// TestMain runs a server process if the command has started this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveFlag || os.Args[1] == countFlag) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestRun_Short checks that every case works, but for those of cachegrind. It does not check the
// results.
func TestRun_Short(t *testing.T) {
	tier.Needs(t, "wrk")
	var others []string
	for name := range parts {
		if name != "cachegrind" {
			others = append(others, name)
		}
	}
	var out, log bytes.Buffer
	require.NoError(t, run([]string{"-short", "-base", os.Args[0], "-only", strings.Join(others, ",")}, &out, &log), "%s", &log)
	checkMeasured(t, out.String(), func(row string) bool {
		return !strings.Contains(row, "given back") && !strings.Contains(row, "cachegrind")
	})

	assert.Contains(t, log.String(), "BenchmarkWhole/size=0.5KB/impl="+base)
	n := 0
	for r := benchfmt.NewReader(&log, "log"); r.Scan(); n++ {
		require.IsType(t, &benchfmt.Result{}, r.Result())
	}
	assert.NotZero(t, n, "results in the Go benchmark format")
}

// checkMeasured checks that the rows of budgets in the output have values.
func checkMeasured(t *testing.T, output string, checked func(row string) bool) {
	t.Helper()
	rows := 0
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "| ") && checked(line) {
			rows++
			assert.NotContains(t, line, "| -   |", "was not measured")
			assert.NotContains(t, line, "NaN")
			assert.NotContains(t, line, "Inf")
		}
	}
	assert.NotZero(t, rows)
}

// TestRun_Cachegrind checks the cases of cachegrind, in which a program with the race detector does
// not run.
func TestRun_Cachegrind(t *testing.T) {
	tier.Needs(t, "valgrind")
	command := filepath.Join(t.TempDir(), "bench")
	out, err := exec.Command("go", "build", "-o", command, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(command, "-short", "-only", "cachegrind", "-base", command)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	checkMeasured(t, string(out), func(row string) bool { return strings.Contains(row, "cachegrind") })
	for _, contender := range []string{ours, std, bare, base} {
		assert.Contains(t, string(out), "BenchmarkCachegrind/whole/impl="+contender)
	}
}

func TestCount_Mistakes(t *testing.T) {
	for _, args := range [][]string{{ours, countWhole, "x"}, {ours, "nonesuch", "1"}, {"nonesuch", countWhole, "1"}, {std, countChunk, "1"}} {
		assert.Error(t, count(args), "%q", args)
	}
}

func TestRun_RefusesUnknownPart(t *testing.T) {
	var out, log bytes.Buffer
	err := run([]string{"-only", "decode,nonesuch"}, &out, &log)
	assert.ErrorContains(t, err, `unknown part "nonesuch"`)
}

func TestPrintReport(t *testing.T) {
	var out bytes.Buffer
	b := &bench{log: os.Stderr, rounds: 3}
	for _, allocs := range []float64{24, 26, 27} {
		b.results = append(b.results, result{"Handler/whole", ours, values{unitAllocs: allocs}})
	}
	require.NoError(t, b.printReport(&out))
	assert.Regexp(t, `\| allocations of a whole request +\| at most 30 +\| 26 \(24 to 27\) +\| yes +\|`, out.String())
	assert.Regexp(t, `\*/whole +26\.00`, out.String(), "the table of benchstat")
}

func TestBudget_Judge(t *testing.T) {
	for _, tc := range []struct {
		name          string
		budget        budget
		measured, met string
	}{
		{"below an upper bound", budget{"", atMost, 2, series{1, 1.5, 9}.median()}, "1.5 (1 to 9)", "yes"},
		{"at an upper bound", budget{"", atMost, 0, series{0, 0, 0}.median()}, "0 (0 to 0)", "yes"},
		{"above an upper bound", budget{"", atMost, 2, series{3, 2.1, 2.5}.median()}, "2.5 (2.1 to 3)", "no"},
		{"above an upper bound in some rounds", budget{"", atMost, 2, series{3, 2, 2.5}.median()}, "2.5 (2 to 3)", "in range"},
		{"below a lower bound in some rounds", budget{"", atLeast, 2, series{1, 2.1, 1.5}.median()}, "1.5 (1 to 2.1)", "in range"},
		{"above a lower bound", budget{"", atLeast, 2, series{3}.median()}, "3 (3 to 3)", "yes"},
		{"at a lower bound", budget{"", atLeast, 2, series{2}.median()}, "2 (2 to 2)", "yes"},
		{"below a lower bound", budget{"", atLeast, 2, series{1.999}.median()}, "2 (2 to 2)", "no"},
		{"thousands", budget{"", atMost, 95_400, series{90_833.4, 91_000, 95_500}.median()}, "91000 (90833 to 95500)", "yes"},
		{"not measured", budget{"", atLeast, 2, series{}.median()}, "-", "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			measured, met := tc.budget.judge()
			assert.Equal(t, tc.measured, measured)
			assert.Equal(t, tc.met, met)
		})
	}
}

func TestBudgets_AreRatiosWithinARound(t *testing.T) {
	var r results
	for _, seconds := range []float64{1, 5, 2} {
		r = append(r, result{"Decode/size=1MB", ours, values{unitTime: seconds}}, result{"Decode/size=1MB", goOpenAI, values{unitTime: 20 * seconds}})
	}
	for _, b := range budgets(r) {
		if b.value.rounds > 0 {
			assert.Equal(t, figure{value: 20, low: 20, high: 20, rounds: 3}, b.value, b.what)
		}
	}
}

func TestWorstHostile(t *testing.T) {
	var r results
	for i, h := range hostileBodies {
		for round := range 2 {
			r = append(r, result{"Hostile/body=" + h.name, ours, values{unitPeak: float64(i + 10*round)}})
		}
	}
	last := float64(len(hostileBodies) - 1)
	assert.Equal(t, series{last, last + 10}, worstHostile(r))
}

func TestRequests_AreJSONOfTheirSize(t *testing.T) {
	for _, size := range []int{512, 8 << 10, 128 << 10, 1 << 20} {
		for _, r := range []request{chatRequest(size, true), chatRequest(size, false), imageRequest(size)} {
			assert.True(t, json.Valid(r.body), "%.200s", r.body)
			assert.InDelta(t, size, len(r.body), 100)
		}
	}
	for _, h := range hostileBodies {
		body := h.request(10_000).body
		assert.True(t, json.Valid(body), "%s: %.200s", h.name, body)
		assert.LessOrEqual(t, len(body), 10_000, h.name)
	}
}

func TestAgentRequest(t *testing.T) {
	body := agentRequest().body
	assert.Equal(t, body, agentRequest().body, "is always the same")
	assert.InDelta(t, 150_000, len(body), 10_000)
	var req struct{ Messages, Tools []any }
	require.NoError(t, json.Unmarshal(body, &req))
	assert.Len(t, req.Messages, 200)
	assert.Len(t, req.Tools, 40)
}

func TestBare_HasTheBytesOfTheHandler(t *testing.T) {
	for _, m := range []mode{modeWhole, modeReady, modePaced} {
		for _, allHeaders := range []bool{false, true} {
			w := httptest.NewRecorder()
			newBare(m, allHeaders).ServeHTTP(w, chatRequest(512, m.streams()).http(""))
			reply := ourReply(m)
			assert.Equal(t, reply.Body.Len(), w.Body.Len(), m)
			assert.Equal(t, reply.Header().Get("Content-Type"), w.Header().Get("Content-Type"))
			if allHeaders {
				want := reply.Header().Clone()
				want.Del("Content-Length")
				assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(w.Header())))
			}
		}
	}
}

func TestCannedBackend_YieldsTheSameStreamAgain(t *testing.T) {
	h := newOurs(cannedBackend(3), llmhttp.Options{})
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, chatRequest(512, true).http(""))
		assert.Equal(t, 3, strings.Count(w.Body.String(), `"content":"`+word(0)+`"`), w.Body)
	}
}

// A cannedTransport replies without a network.
type cannedTransport struct{ reply []byte }

func (t cannedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(t.reply))}, nil
}

// BenchmarkGateway has the large requests of runGateways without a network, so that profiles show
// what they cost in llmhttp. On a busy machine the CPU time varies less than the time.
func BenchmarkGateway(b *testing.B) {
	for name, r := range map[string]request{"agent": agentRequest(), "image": imageRequest(1 << 20)} {
		b.Run(name, func(b *testing.B) {
			backend, err := upstream.New("http://bench.invalid/v1", &upstream.Options{Transport: cannedTransport{ourReply(modeWhole).Body.Bytes()}})
			require.NoError(b, err)
			serve := inProcess(newOurs(backend, llmhttp.Options{}), r)
			b.ReportAllocs()
			before, err := readUsage()
			require.NoError(b, err)
			for b.Loop() {
				serve()
			}
			after, err := readUsage()
			require.NoError(b, err)
			b.ReportMetric((after.CPU-before.CPU).Seconds()/float64(b.N), unitCPU)
		})
	}
}
