package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// What is measured of a store beside its time.
const (
	heapBytes  = "heap_bytes" // of live memory that it takes
	givenBack  = "given_back" // the share of that which is free again later
	afterwards = "after_s"    // how much later, in seconds
)

// stores measures what the Handler asks for each request.
func stores(b *bench) error {
	// The limiter is in a process of its own. When it is measured, time must
	// pass until it forgets its buckets; meanwhile there is the rest.
	b.say("stores, limiter")
	limiter, err := b.startLimiter()
	if err != nil {
		return err
	}
	defer limiter.stop()
	if err := limiter.read(b); err != nil {
		return err
	}
	b.say("stores, keys and usage")
	if err := b.lookups(); err != nil {
		return err
	}
	if err := b.usage(); err != nil {
		return err
	}
	b.say("stores, until the limiter has forgotten its buckets")
	if _, err := io.WriteString(limiter.stdin, "\n"); err != nil {
		return err
	}
	if err := limiter.read(b); err != nil {
		return err
	}
	b.printStores()
	return nil
}

func (b *bench) printStores() {
	t := &table{
		title: "limiter and stores",
		head:  []string{"", "ns", "allocations", "bytes kept"},
		note: "Each is asked for one of what it holds at random; making up the question is not counted. Times are of the median batch of 128. " +
			"The limiter takes from two buckets at a time, and the bytes are of both. Those of a lookup are a key's, and those of a record include what it is remembered by.",
	}
	row := func(what string, f figure, kept string) {
		of := func(metric string) series { f.Metric = metric; return b.report.series(f) }
		t.row(what, of(nanos).spread(), of(allocs).String(), kept)
	}
	kept := func(f figure) string {
		f.Metric = heapBytes
		return b.report.series(f).String()
	}
	for _, n := range limiterSizes(b.short) {
		f := limiterFigure(n)
		row(f.Case, f, kept(f))
	}
	row(busyFigure(b.short).Case, busyFigure(b.short), "")
	row("Lookup in "+count(b.keyCount())+" keys", keysFigure, kept(keysFigure))
	row("Record", recordFigure, kept(recordFigure))
	row("Query of 100 days", queryFigure, "")
	f := limiterFigure(limiterSizes(b.short)[2])
	f.Metric = givenBack
	if back := b.report.series(f); len(back) > 0 {
		share := percent(back)
		f.Metric = afterwards
		t.note += fmt.Sprintf(" Of the memory of %s buckets, %s was free again %s s after the last was made.", count(limiterSizes(b.short)[2]), share, b.report.series(f))
	}
	b.report.print(t)
}

// count formats a number as readers do.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// batchSize is how many questions are made up before the clock runs.
const batchSize = 128

// measureBatches calls op for about d and returns what it takes in the median
// batch, which is not the one in which the garbage collector was at work.
// prepare makes up the questions of a batch and is not counted, nor is what it
// allocates.
func measureBatches(d time.Duration, prepare func(i int), op func(i int)) cost {
	var ns, allocs, bytes series
	var before, after runtime.MemStats
	for spent := time.Duration(0); spent < d; {
		for i := range batchSize {
			prepare(i)
		}
		runtime.ReadMemStats(&before)
		began := time.Now()
		for i := range batchSize {
			op(i)
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		spent += took
		ns = append(ns, float64(took.Nanoseconds()))
		allocs = append(allocs, float64(after.Mallocs-before.Mallocs))
		bytes = append(bytes, float64(after.TotalAlloc-before.TotalAlloc))
	}
	return cost{ns.median() / batchSize, allocs.median() / batchSize, bytes.median() / batchSize}
}

// heap returns how many bytes are in use.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// limiterSizes are how many buckets there are, which is two for each key.
func limiterSizes(short bool) []int {
	if short {
		return []int{2, 100, 1000}
	}
	return []int{2, 1000, 1_000_000}
}

func limiterFigure(n int) figure {
	return figure{"stores", "Take of " + count(n) + " buckets", ours, ""}
}

// busyFigure is of a limiter with as many buckets as the largest, few of which
// are asked for, so that they stay in the caches of the CPU.
func busyFigure(short bool) figure {
	sizes := limiterSizes(short)
	return figure{"stores", "Take of " + count(sizes[2]) + " buckets, " + count(sizes[1]) + " of them busy", ours, ""}
}

// A limiterProcess measures the limiter.
type limiterProcess struct{ *process }

func (b *bench) startLimiter() (*limiterProcess, error) {
	p, err := spawn(nil, "limiter", strconv.FormatBool(b.short), strconv.Itoa(b.rounds))
	return &limiterProcess{p}, err
}

// A finding is a figure that another process measured.
type finding struct {
	Figure figure
	Value  float64
}

// read takes over what the process has found out since the last time.
func (p *limiterProcess) read(b *bench) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	var findings []finding
	if err := json.Unmarshal(line, &findings); err != nil {
		return err
	}
	for _, f := range findings {
		b.report.add(f.Figure, f.Value)
	}
	return nil
}

// limiterChild is the main function of a limiterProcess.
func limiterChild(args []string, out io.Writer) error {
	short := args[0] == "true"
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	d := 100 * time.Millisecond
	if short {
		d = time.Millisecond
	}
	var findings []finding
	tell := func(f figure, metric string, v float64) {
		f.Metric = metric
		findings = append(findings, finding{f, v})
	}
	send := func() error {
		err := json.NewEncoder(out).Encode(findings)
		findings = nil
		return err
	}

	sizes := limiterSizes(short)
	limiters := make([]llmhttp.Limiter, len(sizes))
	ctx := context.Background()
	empty := heap()
	for i, n := range sizes {
		before := heap()
		limiters[i] = llmhttp.NewLimiter()
		for key := range n / 2 {
			limiters[i].Take(ctx, keyOf(key), drawsOf()...)
		}
		tell(limiterFigure(n), heapBytes, (heap()-before)/float64(n/2))
	}
	full := heap()
	filled := time.Now()
	questions := make([]string, batchSize)
	takes := func(f figure, l llmhttp.Limiter, keys int) {
		c := measureBatches(d,
			func(q int) { questions[q] = keyOf(rand.IntN(keys)) },
			func(q int) { l.Take(ctx, questions[q], drawsOf()...) })
		tell(f, nanos, c.ns)
		tell(f, allocs, c.allocs)
	}
	for range rounds {
		for i, n := range sizes {
			takes(limiterFigure(n), limiters[i], n/2)
		}
		takes(busyFigure(short), limiters[2], sizes[1]/2)
	}
	clear(questions)
	if err := send(); err != nil {
		return err
	}
	// It forgets within minutes what is full again. Looking takes time that
	// others are measured in, so it waits for a word. A short run does not.
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	const patience = 3 * time.Minute
	for !short && time.Since(filled) < patience {
		time.Sleep(time.Second)
		if heap()-empty < (full-empty)/20 {
			break
		}
	}
	last := limiterFigure(sizes[len(sizes)-1])
	if !short {
		tell(last, givenBack, 1-(heap()-empty)/(full-empty))
		tell(last, afterwards, time.Since(filled).Seconds())
	}
	runtime.KeepAlive(limiters)
	return send()
}

// keyOf returns the ID of a key.
func keyOf(key int) string { return "key_" + strconv.Itoa(key) }

// drawsOf are the draws of a request, as a Handler makes them. The buckets are
// full again a moment later.
func drawsOf() []llmhttp.Draw {
	quick := llmhttp.Rate{N: 1 << 40, Per: time.Second}
	return []llmhttp.Draw{
		{Bucket: llmhttp.BucketRequests, Rate: quick, Cost: 1},
		{Bucket: llmhttp.BucketTokens, Rate: quick, Cost: 300},
	}
}

var keysFigure = figure{"stores", "Lookup", ours, ""}

func (b *bench) keyCount() int { return b.size(1_000_000, 1000) }

// lookups measures a store of many keys.
func (b *bench) lookups() error {
	n := b.keyCount()
	secretOf := func(i int) string { return fmt.Sprintf("sk-bench-%032d", i) }
	before := heap()
	keys := memory.Keys()
	for i := range n {
		keys.Add(secretOf(i), &llmhttp.Key{Account: "acme", Limits: llmhttp.Limits{Requests: plenty}})
	}
	f := keysFigure
	f.Metric = heapBytes
	b.report.add(f, (heap()-before)/float64(n))
	questions := make([]string, batchSize)
	for range b.rounds {
		var err error
		c := measureBatches(b.window(100*time.Millisecond),
			func(i int) { questions[i] = secretOf(rand.IntN(n)) },
			func(i int) {
				if _, e := keys.Lookup(b.ctx, questions[i]); e != nil {
					err = e
				}
			})
		if err != nil {
			return err
		}
		b.addCost(keysFigure, c)
	}
	runtime.KeepAlive(keys)
	return b.ctx.Err()
}

var (
	recordFigure = figure{"stores", "Record", ours, ""}
	queryFigure  = figure{"stores", "Query", ours, ""}
)

// usage measures a store of usage that has a hundred days of a hundred
// accounts.
func (b *bench) usage() error {
	const accounts, days, models = 100, 100, 5
	n := b.size(500_000, 1000)
	before := heap()
	store := memory.NewUsageStore()
	end := time.Now().Truncate(24 * time.Hour)
	begin := end.Add(-days * 24 * time.Hour)
	step := end.Sub(begin) / time.Duration(n)
	made := 0
	record := func() llmhttp.UsageRecord {
		made++
		return llmhttp.UsageRecord{
			ID: "req_" + strconv.FormatUint(rand.Uint64(), 16) + strconv.Itoa(made), Time: begin.Add(step * time.Duration(made%n)),
			Account: "account_" + strconv.Itoa(rand.IntN(accounts)), KeyID: "key_1", Model: "model-" + strconv.Itoa(rand.IntN(models)),
			Endpoint: llmhttp.EndpointChat, Usage: llmhttp.Usage{PromptTokens: 100, CompletionTokens: 50, TotalTokens: 150},
		}
	}
	ask := func(r llmhttp.UsageRecord) error { return store.Record(b.ctx, r) }
	for range n {
		if err := ask(record()); err != nil {
			return err
		}
	}
	f := recordFigure
	f.Metric = heapBytes
	b.report.add(f, (heap()-before)/float64(n))
	for range b.rounds {
		var err error
		c := measure(b.window(100*time.Millisecond), func() {
			q := llmhttp.UsageQuery{Account: "account_" + strconv.Itoa(rand.IntN(accounts)), From: begin, To: end, Step: 24 * time.Hour}
			sums, e := store.Query(b.ctx, q)
			if err = e; err == nil && len(sums) == 0 && !b.short {
				err = fmt.Errorf("no usage of %s", q.Account)
			}
		})
		if err != nil {
			return err
		}
		b.addCost(queryFigure, c)
	}
	// A new store each round: one that grows for ever is not what a host has.
	questions := make([][]llmhttp.UsageRecord, batchSize)
	for range b.rounds {
		store := memory.NewUsageStore()
		c := measureBatches(b.window(100*time.Millisecond),
			func(i int) { questions[i] = []llmhttp.UsageRecord{record()} },
			func(i int) { store.Record(b.ctx, questions[i]...) })
		b.addCost(recordFigure, c)
	}
	runtime.KeepAlive(store)
	return b.ctx.Err()
}
