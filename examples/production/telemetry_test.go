package main

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/otelllm"
)

// A receiver receives spans by OTLP over HTTP.
type receiver struct {
	url string

	mu    sync.Mutex // guards spans
	spans []*tracepb.Span
}

func startReceiver(t *testing.T) *receiver {
	r := new(receiver)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := io.Reader(req.Body)
		if req.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if !assert.NoError(t, err) {
				return
			}
			body = unzipped
		}
		b, err := io.ReadAll(body)
		var export collector.ExportTraceServiceRequest
		if !assert.NoError(t, err) || !assert.NoError(t, proto.Unmarshal(b, &export)) || !assert.Equal(t, "/v1/traces", req.URL.Path) {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range export.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// trace returns the spans of a trace by their names.
func (r *receiver) trace(id string) map[string]*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := make(map[string]*tracepb.Span)
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) == id {
			spans[s.Name] = s
		}
	}
	return spans
}

// A tap is a proxy in front of an upstream that notes what traceparent it gets.
type tap struct {
	url string

	mu           sync.Mutex // guards traceparents
	traceparents []string
}

func startTap(t *testing.T, upstream *process) *tap {
	target, err := url.Parse(upstream.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	tap := new(tap)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tap.mu.Lock()
		tap.traceparents = append(tap.traceparents, r.Header.Get("Traceparent"))
		tap.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	tap.url = server.URL
	return tap
}

// last returns the traceparent of the last request.
func (tap *tap) last() string {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	return tap.traceparents[len(tap.traceparents)-1]
}

var metricsPattern = regexp.MustCompile(`"url":"http://(\S+)/metrics"`)

// metricsAddr returns the address on which the process serves its metrics.
func (p *process) metricsAddr(t *testing.T) string {
	t.Helper()
	match := metricsPattern.FindStringSubmatch(p.Output.String())
	require.NotNil(t, match)
	return match[1]
}

// A metricsServer is a Prometheus that scrapes copies of the example as the job llmhttp.
type metricsServer struct{ url string }

// forPattern matches how long the condition of an alert must hold before it fires.
var forPattern = regexp.MustCompile(`(?m)^( +for: ).*$`)

// startPrometheus starts a Prometheus that scrapes the addresses, with the alert rules. Alerts fire
// when their condition has held for a second.
func startPrometheus(t *testing.T, addrs ...string) *metricsServer {
	t.Helper()
	tier.Needs(t, "Prometheus")
	rules, err := os.ReadFile("../../otelllm/prometheus/alerts.yml")
	require.NoError(t, err)
	targets, err := json.Marshal(addrs)
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), forPattern.ReplaceAll(rules, []byte("${1}1s")), 0o600))
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: llmhttp
    static_configs: [{targets: %s}]
`, targets), 0o600))
	address := "127.0.0.1:" + freePort(t)
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	var output proctest.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start(), "scripts/setup.sh installs prometheus")
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	m := &metricsServer{"http://" + address}
	eventually(t, func(c *assert.CollectT) {
		status, _ := probe(m.url + "/-/ready")
		require.Equal(c, 200, status)
	})
	return m
}

// awaitAlert waits until an alert fires whose summary contains the texts.
func (m *metricsServer) awaitAlert(t *testing.T, name string, texts ...string) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) {
		firing := m.alerts(c, name)
		require.True(c, slices.ContainsFunc(firing, func(summary string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(summary, text) })
		}), "%s fires for %q", name, firing)
	})
}

// awaitNoAlert waits until no alert fires whose summary contains the text.
func (m *metricsServer) awaitNoAlert(t *testing.T, name, text string) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) {
		require.NotContains(c, strings.Join(m.alerts(c, name), "\n"), text, name)
	})
}

// alerts returns the summaries of the alerts with a name that fire.
func (m *metricsServer) alerts(t require.TestingT, name string) (summaries []string) {
	resp, err := http.Get(m.url + "/api/v1/alerts")
	require.NoError(t, err)
	defer resp.Body.Close()
	var reply struct {
		Data struct {
			Alerts []struct {
				Labels, Annotations map[string]string
				State               string
			}
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&reply))
	for _, a := range reply.Data.Alerts {
		if a.State == "firing" && a.Labels["alertname"] == name {
			summaries = append(summaries, a.Annotations["summary"])
		}
	}
	return summaries
}

// query returns the values of an instant query, by the values of the labels other than
// the name, the job and the instance.
func (m *metricsServer) query(t require.TestingT, expr string) map[string]float64 {
	resp, err := http.Get(m.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	require.NoError(t, err)
	defer resp.Body.Close()
	var reply struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&reply))
	require.Equal(t, "success", reply.Status, "%s: %s", expr, reply.Error)
	values := make(map[string]float64)
	for _, r := range reply.Data.Result {
		var labels []string
		for _, name := range []string{"gen_ai_request_model", "gen_ai_token_type", "llmhttp_token_kind", "llmhttp_limit", "llmhttp_target", "llmhttp_check", "llmhttp_account", "error_type"} {
			if v, ok := r.Metric[name]; ok {
				labels = append(labels, v)
			}
		}
		value, err := strconv.ParseFloat(r.Value[1].(string), 64)
		require.NoError(t, err)
		values[strings.Join(labels, " ")] = value
	}
	return values
}

// dashboardQueries returns the queries of the dashboard by the title of the panel and
// their number, with values for Grafana's variables.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../otelllm/grafana/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	queries := make(map[string]string)
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			queries[fmt.Sprintf("%s %d", p.Title, i+1)] = strings.NewReplacer("$__rate_interval", "1m", "$job", "llmhttp").Replace(target.Expr)
		}
	}
	return queries
}

// ratePattern matches what makes a rate of a counter.
var ratePattern = regexp.MustCompile(`(?:rate|increase)\((\w+\{[^}]*\})\[\w+\]\)`)

// TestTelemetry runs the example with a real Prometheus, an OTLP receiver and two
// upstreams, one of which is down. The queries of the dashboard tell what the requests
// did.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	upstream := startTap(t, startUpstream(t, 0))
	otlp := startReceiver(t)
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.json")
	require.NoError(t, os.WriteFile(prices, []byte(`{"models": {"demo-chat": {"input": 1e6, "output": 1e6}}}`), 0o600))
	dsn := filepath.Join(dir, "llm.db")
	p := start(t, newCommand([]string{
		"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=", "LLMHTTP_UPSTREAM=models=" + upstream.url + "/v1 down=http://127.0.0.1:" + freePort(t), "LLMHTTP_KEY_MODELS=" + upstreamKey,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + otlp.url + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=100",
	}, "-metrics", "127.0.0.1:0", "-account-metrics", "-prices", prices, "-breaker-failures", "-1", "-trusted-proxies", "127.0.0.0/8"))
	prometheus := startPrometheus(t, p.metricsAddr(t))
	full, limited := client{p.url, createKey(t, dsn).Secret}, client{p.url, createKey(t, dsn, "--requests", "1/365d").Secret}

	var tokens float64
	for range 5 {
		u := full.mustChat(t, 3)
		tokens += float64(u.PromptTokens + u.CompletionTokens)
	}
	for range 3 {
		full.startStream(t, 4).requireComplete(t, 4)
	}
	for range 2 {
		status, reply := full.send(t, "POST", chatPath, `{"model": 1}`)
		assert.Equal(t, 400, status, reply)
	}
	for i := range 4 {
		status, reply := full.send(t, "POST", chatPath, fmt.Sprintf(`{"model":"hostile-%d","messages":[{"role":"user","content":"x"}]}`, i))
		assert.Equal(t, 502, status, reply) // the other upstream might know the model
	}
	cut := full.startStream(t, 1_000_000)
	require.NoError(t, cut.close())
	p.awaitOutput(t, `"error_class":"canceled"`)
	for i := range 4 {
		status, _ := limited.chat(t)
		assert.Equal(t, i > 0, status == 429)
	}
	status, _ := client{p.url, unknownSecret}.chat(t)
	assert.Equal(t, 401, status)

	queries := dashboardQueries(t)
	// total evaluates a query of the dashboard for counters instead of their rates.
	total := func(t require.TestingT, name string) map[string]float64 {
		require.Contains(t, queries, name)
		return prometheus.query(t, ratePattern.ReplaceAllString(queries[name], "$1"))
	}
	eventually(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]float64{"demo-chat": 10, "_OTHER": 4, "": 6}, total(c, "Requests by model 1"))
	})
	for name, want := range map[string]map[string]float64{
		"Errors by class 1":           {"canceled": 1, "invalid_request": 2, "backend": 4, "rate_limit": 3, "authentication": 1},
		"Requests in progress 1":      {"": 0},
		"Refusals by limit 1":         {"requests": 3},
		"Fallbacks and cut streams 2": {"canceled": 1},
		"Usage records 2":             {"": 0},
		"Usage records 3":             {"": 0},
		"Usage records 4":             {"": 0},
	} {
		assert.Equal(t, want, total(t, name), name)
	}
	tries, fallbacks := total(t, "Tries by target 1"), total(t, "Fallbacks and cut streams 1")
	assert.EqualValues(t, 14, tries["models"])
	assert.Equal(t, map[string]float64{"models not_found": 4, "models canceled": 1, "down backend": tries["down"]}, total(t, "Tries by target 2"))
	assert.Positive(t, fallbacks["models"])
	assert.LessOrEqual(t, fallbacks["models"], tries["down"])
	used := total(t, "Tokens 1")
	assert.Greater(t, used["input"]+used["output"], tokens, "of which the streams and the request of the limited key are the rest")
	const perHour = 3600
	spend := total(t, "Spend per hour by model 1")
	assert.Greater(t, spend["demo-chat"]/perHour, used["input"]+used["output"], "the estimated usage of the stream that was cut is the rest")
	var all float64
	for _, amount := range spend {
		all += amount
	}
	byAccount := total(t, "Spend per hour by account 1")
	require.Len(t, byAccount, 1)
	assert.InDelta(t, all, byAccount[t.Name()], 1e-6*all)
	for name, query := range queries {
		prometheus.query(t, query) // is valid
		if strings.HasPrefix(name, "Time") || strings.HasPrefix(name, "Duration") {
			assert.Positive(t, total(t, name)[""], name)
		}
	}
	checkTrace(t, p, otlp, full)
	assert.Equal(t, "00-"+clientTrace+"-"+hex.EncodeToString(otlp.trace(clientTrace)["chat models"].SpanId)+"-01", upstream.last())
	assert.Equal(t, map[string]float64{"": 1}, total(t, "Processes 1"), "ready")
	assert.Equal(t, map[string]float64{"": 1}, total(t, "Processes 2"), "that answer")
	assert.Empty(t, total(t, "Processes 3"), "that do not")
	assert.Equal(t, map[string]float64{"keys": 1, "usage": 1, "responses": 1}, prometheus.query(t, "llmhttp_check_success"))
	for _, secret := range []string{full.secret, "hostile"} {
		resp, err := http.Get("http://" + p.metricsAddr(t) + "/metrics")
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		assert.NotContains(t, string(text), secret)
	}
	assert.NoError(t, p.Cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, p.Wait(t))
}

// The trace and the span of a client.
const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// checkTrace checks that the spans of a request continue the trace of its client.
func checkTrace(t *testing.T, p *process, otlp *receiver, c client) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+chatPath, strings.NewReader(chatBody(true, 3)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+c.secret)
	req.Header.Set("Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	var chat, try, server *tracepb.Span
	eventually(t, func(c *assert.CollectT) {
		spans := otlp.trace(clientTrace)
		chat, try, server = spans["chat demo-chat"], spans["chat models"], spans["POST "+chatPath]
		require.NotNil(c, server, "the span that ends last")
	})
	require.NotNil(t, chat)
	require.NotNil(t, try)
	assert.Equal(t, clientSpan, hex.EncodeToString(server.ParentSpanId))
	assert.Equal(t, tracepb.Span_SPAN_KIND_SERVER, server.Kind)
	assert.Equal(t, server.SpanId, chat.ParentSpanId)
	assert.Equal(t, chat.SpanId, try.ParentSpanId)
	assert.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, try.Kind)
	var address string
	for _, a := range try.Attributes {
		if a.Key == "server.address" {
			address = a.Value.GetStringValue()
		}
	}
	assert.Equal(t, "127.0.0.1", address)
	p.awaitOutput(t, `"trace_id":"`+clientTrace+`"`)
}

// A client that is not a trusted proxy chooses neither the trace nor whether it is sampled. Its
// traceparent is a link.
func TestTelemetry_UntrustedTraceparent(t *testing.T) {
	t.Parallel()
	upstream := startTap(t, startUpstream(t, 0))
	otlp := startReceiver(t)
	dsn := filepath.Join(t.TempDir(), "llm.db")
	p := start(t, newCommand([]string{
		"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=", "LLMHTTP_UPSTREAM=models=" + upstream.url + "/v1", "LLMHTTP_KEY_MODELS=" + upstreamKey,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + otlp.url + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=100",
	}, "-trusted-proxies", "192.0.2.0/24"))
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+chatPath, strings.NewReader(chatBody(false, 3)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+createKey(t, dsn).Secret)
	req.Header.Set("Traceparent", "00-"+clientTrace+"-"+clientSpan+"-00") // not sampled
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)

	parts := strings.Split(upstream.last(), "-")
	require.Len(t, parts, 4)
	assert.NotEqual(t, clientTrace, parts[1])
	assert.Equal(t, "01", parts[3], "sampled")
	eventually(t, func(c *assert.CollectT) {
		server := otlp.trace(parts[1])["POST "+chatPath]
		require.NotNil(c, server)
		assert.Empty(c, server.ParentSpanId)
		require.Len(c, server.Links, 1)
		assert.Equal(c, clientTrace, hex.EncodeToString(server.Links[0].TraceId))
		assert.Equal(c, clientSpan, hex.EncodeToString(server.Links[0].SpanId))
	})
	assert.Empty(t, otlp.trace(clientTrace))
}

// Without traffic, the gauges tell that Redis is away.
func TestTelemetry_RedisAway(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	dsn := filepath.Join(t.TempDir(), "llm.db")
	p := start(t, newCommand([]string{"LLMHTTP_DSN=" + dsn, "LLMHTTP_REDIS=" + redis.DSN()}, "-demo", "-metrics", "127.0.0.1:0", "-redis-timeout", "1s"))
	metrics := func() string {
		_, text := probe("http://" + p.metricsAddr(t) + "/metrics")
		return text
	}
	for _, up := range []int{1, 0, 1} {
		eventually(t, func(c *assert.CollectT) {
			text := metrics()
			require.Contains(c, text, fmt.Sprintf("llmhttp_check_success{llmhttp_check=\"limits\"} %d\n", up))
			require.Contains(c, text, "llmhttp_check_success{llmhttp_check=\"keys\"} 1\n")
			require.Contains(c, text, "\nllmhttp_ready 1")
		})
		if up == 1 {
			redis.Stop(t)
		} else {
			redis.Start(t)
		}
	}
}

func TestTargets(t *testing.T) {
	assert.Equal(t, map[string]otelllm.Target{
		"a": {Address: "a.test", Port: 443}, "b": {Address: "::1", Port: 8000}, "c": {Address: "c.test", Port: 80},
	}, targets(map[string]server{
		"a": {config: upstreamConfig{URL: "https://a.test/v1"}}, "b": {config: upstreamConfig{URL: "http://[::1]:8000/v1"}}, "c": {config: upstreamConfig{URL: "http://c.test"}},
	}))
}

// alertPattern matches the name of an alert in its rule.
var alertPattern = regexp.MustCompile(`- alert: (\w+)`)

// TestAlertRules checks the rules with Prometheus' own tool, and that it is tested of each alert that it
// fires and that it does not.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	const dir = "../../otelllm/prometheus"
	rules, err := os.ReadFile(filepath.Join(dir, "alerts.yml"))
	require.NoError(t, err)
	tests, err := os.ReadFile(filepath.Join(dir, "alerts_test.yml"))
	require.NoError(t, err)
	alerts := alertPattern.FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		assert.Regexp(t, `alertname: `+alert[1]+`\n +exp_alerts:\n`, string(tests), "fires")
		assert.Contains(t, string(tests), ", alertname: "+alert[1]+"}\n", "does not fire")
	}
	tier.Needs(t, "Prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}
