package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// What is measured of something that happens again and again in this process.
const (
	nanos     = "ns"
	allocs    = "allocs"
	allocated = "bytes"
)

// A cost is what one go at something takes.
type cost struct{ ns, allocs, bytes float64 }

func (b *bench) addCost(f figure, c cost) {
	for metric, v := range map[string]float64{nanos: c.ns, allocs: c.allocs, allocated: c.bytes} {
		f.Metric = metric
		b.report.add(f, v)
	}
}

// measure calls op for about d.
func measure(d time.Duration, op func()) cost {
	op()
	began := time.Now()
	op()
	batch := min(max(int(d/20/max(time.Since(began), time.Nanosecond)), 1), 1<<16)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began = time.Now()
	n := 0
	for n == 0 || time.Since(began) < d {
		for range batch {
			op()
		}
		n += batch
	}
	elapsed := time.Since(began)
	runtime.ReadMemStats(&after)
	return cost{
		ns:     float64(elapsed.Nanoseconds()) / float64(n),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}
}

// A nullWriter is a ResponseWriter that costs next to nothing.
type nullWriter struct {
	header  http.Header
	flushes int
}

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) WriteHeader(int)             {}
func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *nullWriter) Flush()                      { w.flushes++ }
func (w *nullWriter) FlushError() error           { w.flushes++; return nil }

// net/http's has deadlines, too.
func (w *nullWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *nullWriter) SetReadDeadline(time.Time) error  { return nil }

// A call is a request that is served again and again.
type call struct {
	handler http.Handler
	body    []byte
	reader  *bytes.Reader
	request *http.Request
	writer  *nullWriter
}

func newCall(h http.Handler, body []byte) *call {
	c := &call{handler: h, body: body, reader: bytes.NewReader(body), writer: &nullWriter{header: http.Header{}}}
	c.request = httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	c.request.Header.Set("Authorization", "Bearer "+secret)
	c.request.Header.Set("Content-Type", "application/json")
	c.request.Body = io.NopCloser(c.reader)
	c.request.ContentLength = int64(len(body))
	return c
}

func (c *call) serve() {
	c.reader.Reset(c.body)
	clear(c.writer.header)
	c.handler.ServeHTTP(c.writer, c.request)
}

// A cannedModel gives one answer and allocates nothing for it. It serves one
// request at a time.
type cannedModel struct{ answer llmhttp.ChatStream }

func (m cannedModel) Chat(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return m.answer }

func newCanned() cannedModel {
	chunk := llmhttp.TextChunk("")
	last := &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: promptTokens, CompletionTokens: chunkCount}}
	return cannedModel{func(yield func(*llmhttp.ChatChunk, error) bool) {
		chunk.Choices[0].Delta.Content = answerText
		if yield(chunk, nil) {
			yield(last, nil)
		}
	}}
}

// A frugalModel says n words without allocating anything for one.
type frugalModel struct {
	n     int
	turns bool // give way after each
}

func (m frugalModel) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		chunk := llmhttp.TextChunk("")
		for i := range m.n {
			chunk.Choices[0].Delta.Content = word(i)
			if !yield(chunk, nil) {
				return
			}
			if m.turns {
				runtime.Gosched()
			}
		}
		yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: promptTokens, CompletionTokens: m.n}}, nil)
	}
}

// A setup is how much of the Handler is in use.
type setup struct{ keys, limits, usage bool }

var everything = setup{keys: true, limits: true, usage: true}

func (s setup) handler(b llmhttp.Backend) http.Handler {
	keys := llmhttp.AllowAll("acme")
	if s.keys {
		k := &llmhttp.Key{ID: "key_1", Account: "acme"}
		if s.limits {
			k.Limits = llmhttp.Limits{Requests: plenty, Tokens: plenty}
		}
		store := memory.Keys()
		store.Add(secret, k)
		keys = store
	}
	opts := &llmhttp.Options{}
	if s.usage {
		opts.Usage = memory.NewUsageStore()
	}
	return llmhttp.NewHandler(b, keys, opts)
}

func inFigure(what, subject, metric string) figure {
	return figure{"inprocess", what, subject, metric}
}

// inProcess measures the Handler alone: net/http and the kernel have no part.
func inProcess(b *bench) error {
	b.say("inprocess, totals")
	if err := b.totals(); err != nil {
		return err
	}
	b.say("inprocess, chunks in turns")
	if err := b.flushedChunks(); err != nil {
		return err
	}
	b.say("inprocess, layers")
	return b.layers()
}

// The lengths of the streams whose difference is what a chunk costs.
const shortStream, longStream = 100, 1100

func (b *bench) totals() error {
	small, streamed := chatBody(512, false), chatBody(512, true)
	subjects := []struct {
		what, subject string
		call          *call
	}{
		{"whole 0.5 KB", ours, newCall(everything.handler(newCanned()), small)},
		{"whole 0.5 KB", std, newCall(newStd(modeWhole), small)},
		{"whole 8 KB", ours, newCall(everything.handler(newCanned()), chatBody(8<<10, false))},
		{"whole 8 KB", std, newCall(newStd(modeWhole), chatBody(8<<10, false))},
		{"stream of 100", ours, newCall(everything.handler(frugalModel{n: shortStream}), streamed)},
		{"stream of 100", std, newCall(newStd(modeReady), streamed)},
		{"stream of 1,100", ours, newCall(everything.handler(frugalModel{n: longStream}), streamed)},
	}
	var names []string
	calls := make(map[string]int)
	for i, s := range subjects {
		name := s.what + ", " + s.subject
		names = append(names, name)
		calls[name] = i
	}
	err := b.eachRound(b.rounds, names, func(name string) error {
		s := subjects[calls[name]]
		b.addCost(inFigure(s.what, s.subject, ""), measure(b.window(200*time.Millisecond), s.call.serve))
		return nil
	})
	if err != nil {
		return err
	}
	t := &table{
		title: "in process",
		head:  []string{"", "", "ns", "allocations", "bytes"},
		note: "Into a ResponseWriter that does nothing. llmhttp is as in whole, but its Backend allocates nothing. " +
			"The chunk is from the difference between streams of 1,100 and 100 ready ones.",
	}
	for _, s := range subjects {
		f := func(metric string) series { return b.report.series(inFigure(s.what, s.subject, metric)) }
		t.row(s.what, s.subject, f(nanos).spread(), f(allocs).String(), f(allocated).String())
	}
	chunk := func(metric string) series {
		long, short := inFigure("stream of 1,100", ours, metric), inFigure("stream of 100", ours, metric)
		per := b.report.series(long).minus(b.report.series(short)).times(1.0 / (longStream - shortStream))
		for _, v := range per {
			b.report.add(inFigure("chunk, ready", ours, metric), v)
		}
		return per
	}
	t.row("chunk, ready", ours, chunk(nanos).spread(), chunk(allocs).String(), chunk(allocated).String())
	b.report.print(t)
	return nil
}

// flushedChunks measures chunks that are flushed one by one. So many streams
// take turns on one CPU that those of one stream are far enough apart.
func (b *bench) flushedChunks() error {
	const streams = 512
	chunks := b.size(400, 20)
	body := chatBody(512, true)
	h := everything.handler(frugalModel{n: chunks, turns: true})
	atOnce := func(one func(*nullWriter)) (c cost, flushes float64) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var all sync.WaitGroup
		writers := make([]nullWriter, streams)
		c = measure(0, func() { // twice to warm up, once to count
			for i := range writers {
				writers[i] = nullWriter{header: http.Header{}}
				all.Go(func() { one(&writers[i]) })
			}
			all.Wait()
		})
		for i := range writers {
			flushes += float64(writers[i].flushes)
		}
		return c, flushes
	}
	f := inFigure("chunk, flushed", ours, "")
	for range b.rounds {
		whole, flushes := atOnce(func(w *nullWriter) {
			c := newCall(h, body)
			c.writer = w
			c.serve()
		})
		turns, _ := atOnce(func(w *nullWriter) {
			c := newCall(h, body)
			c.writer = w
			for range chunks {
				runtime.Gosched()
			}
		})
		n := float64(streams * chunks)
		b.addCost(f, cost{(whole.ns - turns.ns) / n, (whole.allocs - turns.allocs) / n, (whole.bytes - turns.bytes) / n})
		f.Metric = "flushes"
		b.report.add(f, flushes/n)
	}
	of := func(metric string) series { return b.report.series(inFigure(f.Case, ours, metric)) }
	t := &table{
		title: "in process, chunks flushed one by one",
		head:  []string{"", "ns", "allocations", "flushes"},
		note: fmt.Sprintf("%d streams of %d chunks take turns on one CPU, less what the turns alone cost. A stream's own beginning and end are part of it.",
			streams, chunks),
	}
	t.row("a chunk", of(nanos).spread(), of(allocs).String(), of("flushes").String())
	b.report.print(t)
	return b.ctx.Err()
}
