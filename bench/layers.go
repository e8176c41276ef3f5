package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/llmhttp/llmhttp"
)

// A layer is a part of the life of a request. What its functions do, and what
// they call, belongs to it.
type layer struct {
	name      string
	functions []string // parts of their names
}

// layers are in the order of a request's life. A sample belongs to the layer of
// its innermost function that is of one.
var layers = []layer{
	{"auth", []string{"(*exchange).authenticate", "memory.(*KeyStore)"}},
	{"read", []string{"(*exchange).readBody", "llmhttp.checkMediaType"}},
	{"decode", []string{"llmhttp.decodeBody", "jsonwire.(*Decoder)"}},
	{"check", []string{"(*ChatRequest).check", "(*exchange).useModel"}},
	{"limit", []string{"(*exchange).admit", "(*exchange).countPrompt", "(*exchange).refund", "(*exchange).release", "(*grant)", "(*limiter)", "llmhttp.chatCost"}},
	{"backend", []string{"model.Chat", "mode.say", "frugalModel.Chat", "newCanned"}},
	{"shape", []string{"(*exchange).accept", "(*shaper)", "(*joiner)"}},
	{"encode", []string{"jsonwire.(*Encoder)", ").encode", "(*sseWriter).delta", "(*sseWriter).open", "(*sseWriter).end", "(*sseWriter).usage", "(*exchange).replyIdentity"}},
	{"write", []string{"(*exchange).writeHeaders", "llmhttp.writeJSON", "(*headerValues)", "(*sseWriter).push", "(*sseWriter).flush", "(*sseWriter).wake", "(*nullWriter)"}},
	{"record", []string{"(*exchange).settle", "(*exchange).measure", "memory.(*Usage)"}},
}

const (
	layerRest    = "rest of the Handler"
	layerGC      = "garbage collector"
	layerRuntime = "scheduler"
)

// layerOf returns the layer of a stack, which begins with the innermost
// function.
func layerOf(stack []string) string {
	for _, function := range stack {
		for i := range layers {
			for _, part := range layers[i].functions {
				if strings.Contains(function, part) {
					return layers[i].name
				}
			}
		}
	}
	for _, function := range stack {
		switch {
		case strings.Contains(function, "(*Handler).ServeHTTP"), strings.Contains(function, "(*call).serve"):
			return layerRest
		case function == "runtime.gcBgMarkWorker", function == "runtime.bgsweep", function == "runtime.bgscavenge":
			return layerGC
		}
	}
	return layerRuntime
}

// layers prints where the time and the allocations go.
func (b *bench) layers() error {
	small, streamed := chatBody(512, false), chatBody(512, true)
	cases := []struct {
		what  string
		unit  string
		per   float64
		calls func() *call
	}{
		{"whole 0.5 KB", "a request", 1, func() *call { return newCall(everything.handler(newCanned()), small) }},
		{"stream of 1,100", "a chunk", longStream, func() *call { return newCall(everything.handler(frugalModel{n: longStream}), streamed) }},
	}
	switchedOff, err := b.switchedOff(small)
	if err != nil {
		return err
	}
	for _, c := range cases {
		times, err := profileTime(b.window(6*time.Second), c.calls)
		if err != nil {
			return err
		}
		counts := profileAllocs(b.size(20000/int(c.per), 20), c.calls())
		t := &table{
			title: fmt.Sprintf("in process, %s by layer: %s", c.what, c.unit),
			head:  []string{"", "ns", "share", "allocations"},
			note:  "By a CPU profile and a profile of every allocation: a sample belongs to the innermost function that is of a layer.",
		}
		whole := c.what == "whole 0.5 KB"
		if whole {
			t.head = append(t.head, "ns by difference")
			t.note += " By difference: what goes when the layer is switched off (auth, limit, record), or what it takes on its own (decode, backend, encode)."
		}
		var sum, count float64
		for _, v := range times {
			sum += v
		}
		for _, v := range counts {
			count += v
		}
		for _, name := range layerNames() {
			ns, n := times[name]/c.per, counts[name]/c.per
			b.report.add(inFigure(c.what, name, nanos), ns)
			b.report.add(inFigure(c.what, name, allocs), n)
			row := []string{name, number(ns), fmt.Sprintf("%.0f %%", 100*times[name]/sum), number(n)}
			if whole {
				row = append(row, switchedOff[name].spread())
			}
			t.row(row...)
		}
		row := []string{"all", number(sum / c.per), "100 %", number(count / c.per)}
		if whole {
			row = append(row, b.report.series(inFigure(c.what, ours, nanos)).spread())
		}
		t.row(row...)
		b.report.print(t)
	}
	return nil
}

func layerNames() []string {
	var names []string
	for _, l := range layers {
		names = append(names, l.name)
	}
	return append(names, layerRest, layerGC, layerRuntime)
}

// parts is the case of what switchedOff measures.
const parts = "whole 0.5 KB, in parts"

// switchedOff measures layers by leaving them out, and those that cannot be
// left out on their own.
func (b *bench) switchedOff(body []byte) (map[string]series, error) {
	m := newCanned()
	req := new(llmhttp.ChatRequest)
	if err := req.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	reply, err := llmhttp.Collect(m.Chat(context.Background(), req))
	if err != nil {
		return nil, err
	}
	noUsage := newCall(setup{keys: true, limits: true}.handler(m), body)
	noLimits := newCall(setup{keys: true}.handler(m), body)
	noKeys := newCall(setup{}.handler(m), body)
	noKeys.request.Header.Del("Authorization")
	ops := map[string]func(){
		"everything": newCall(everything.handler(m), body).serve,
		"no usage":   noUsage.serve,
		"no limits":  noLimits.serve,
		"no keys":    noKeys.serve,
		"decode":     func() { new(llmhttp.ChatRequest).UnmarshalJSON(body) },
		"backend":    func() { m.Chat(context.Background(), req)(takeAll) },
		"encode":     func() { reply.MarshalJSON() },
	}
	names := []string{"everything", "no usage", "no limits", "no keys", "decode", "backend", "encode"}
	err = b.eachRound(b.rounds, names, func(name string) error {
		b.addCost(inFigure(parts, name, ""), measure(b.window(150*time.Millisecond), ops[name]))
		return nil
	})
	ns := func(name string) series { return b.report.series(inFigure(parts, name, nanos)) }
	return map[string]series{
		"record":  ns("everything").minus(ns("no usage")),
		"limit":   ns("no usage").minus(ns("no limits")),
		"auth":    ns("no limits").minus(ns("no keys")),
		"decode":  ns("decode"),
		"backend": ns("backend"),
		"encode":  ns("encode"),
	}, err
}

func takeAll(*llmhttp.ChatChunk, error) bool { return true }

// profileTime serves calls for d on all CPUs and returns the CPU time of each
// layer, in ns a call.
func profileTime(d time.Duration, newCall func() *call) (map[string]float64, error) {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		return nil, err
	}
	workers := runtime.GOMAXPROCS(0)
	counts := make([]int, workers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		c := newCall()
		all.Go(func() {
			for time.Since(began) < d {
				for range 16 {
					c.serve()
				}
				counts[i] += 16
			}
		})
	}
	all.Wait()
	pprof.StopCPUProfile()
	p, err := profile.Parse(&buf)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, c := range counts {
		n += c
	}
	times := make(map[string]float64)
	for _, s := range p.Sample {
		var stack []string
		for _, location := range s.Location {
			for _, line := range location.Line {
				stack = append(stack, line.Function.Name)
			}
		}
		times[layerOf(stack)] += float64(s.Value[1]) / float64(n)
	}
	return times, nil
}

// profileAllocs serves c n times and returns the allocations of each layer, per
// call.
func profileAllocs(n int, c *call) map[string]float64 {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	for range 10 { // until every CPU has noticed the rate
		c.serve()
		runtime.GC()
	}
	before := allocsByLayer()
	for range n {
		c.serve()
	}
	after := allocsByLayer()
	for name := range after {
		after[name] = (after[name] - before[name]) / float64(n)
	}
	return after
}

// allocsByLayer counts what was allocated so far.
func allocsByLayer() map[string]float64 {
	runtime.GC() // the profile is of what was there before the last but one
	runtime.GC()
	var records []runtime.MemProfileRecord
	n, ok := runtime.MemProfile(nil, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+n/4+16)
		n, ok = runtime.MemProfile(records, true)
	}
	counts := make(map[string]float64)
	for i := range records[:n] {
		var stack []string
		frames := runtime.CallersFrames(records[i].Stack())
		for {
			f, more := frames.Next()
			stack = append(stack, f.Function)
			if !more {
				break
			}
		}
		if slices.ContainsFunc(stack, func(f string) bool { return strings.HasSuffix(f, ".allocsByLayer") }) {
			continue
		}
		counts[layerOf(stack)] += float64(records[i].AllocObjects)
	}
	return counts
}
