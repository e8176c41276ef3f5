package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"time"
)

// A budget is a bound on a measured value, most often on the ratio of two.
type budget struct {
	what  string
	bound string // atMost or atLeast
	limit float64
	value figure
}

const (
	atMost  = "at most"
	atLeast = "at least"
)

// budgets returns the budgets with what was measured for them.
func budgets(r results) []budget {
	ratio := func(name, unit, contender, other string) figure {
		return r.series(name, contender, unit).combine(r.series(name, other, unit), divide).median()
	}
	cpu := func(name, contender, other string) figure { return ratio(name, unitCPU, contender, other) }
	added := func(contender string) series { // the latency that a gateway adds
		const name = "Gateway/connections=1"
		return r.series(name, contender, unitLatency).combine(r.series(name, bare, unitLatency), subtract)
	}
	counted := func(what, unit string) figure { return r.series("Cachegrind/"+what, ours, unit).median() }
	chunkAllocs := r.series("Handler/chunks=1100", ours, unitAllocs).
		combine(r.series("Handler/chunks=100", ours, unitAllocs), allocsPerChunk)
	return []budget{
		{"whole 0.5 KB: CPU, of bare", atMost, 2.3, cpu("Whole/size=0.5KB", ours, bare)},
		{"whole 0.5 KB: CPU, of bare with the same headers", atMost, 1.8, cpu("Whole/size=0.5KB", ours, bareWithHeaders)},
		{"whole 0.5 KB: requests/s, of std", atLeast, 1, cpu("Whole/size=0.5KB", std, ours)},
		{"whole 8 KB: requests/s, of std", atLeast, 2.5, cpu("Whole/size=8KB", std, ours)},
		{"decode 128 KB: times as fast as encoding/json", atLeast, 3, ratio("Decode/size=128KB", unitTime, goOpenAI, ours)},
		{"decode 1 MB: times as fast as encoding/json", atLeast, 10, ratio("Decode/size=1MB", unitTime, goOpenAI, ours)},
		{"decode an agent's request: time, of encoding/json", atMost, 0.35, ratio("Decode/request=agent", unitTime, ours, goOpenAI)},
		{"stream, a flush per chunk: CPU, of bare", atMost, 1.35, cpu("Stream/chunks=paced", ours, bare)},
		{"stream, chunks ready at once: streams/s, of bare", atLeast, 3.5, cpu("Stream/chunks=ready", bare, ours)},
		{"speech, a flush per piece of 2 KB: CPU, of bare", atMost, 1.3, cpu("Speech/pieces=paced", ours, bare)},
		{"Messages API, a flush per chunk: CPU, of chat", atMost, 1.15, cpu("Stream/chunks=paced", messagesAPI, ours)},
		{"Responses API, a flush per chunk: CPU, of chat", atMost, 1.3, cpu("Stream/chunks=paced", responsesAPI, ours)},
		{"whole 0.5 KB with otelllm: CPU, of without", atMost, 1.2, cpu("Whole/size=0.5KB", traced, ours)},
		{"whole 0.5 KB with prices and two more subjects: CPU, of without", atMost, 1.15, cpu("Whole/size=0.5KB", priced, ours)},
		{"stream, bursts: chunks held back", atMost, 0, r.series("Stream/chunks=bursts", ours, unitLate).median()},
		{"allocations per text chunk", atMost, 0, chunkAllocs.median()},
		{"allocations of a whole request", atMost, 30, r.series("Handler/whole", ours, unitAllocs).median()},
		{"memory of a request of 128 KB, of its body", atMost, 2.5, r.series("Memory/size=128KB", ours, unitAllocated).median()},
		{"memory of a request of 1 MB, of its body", atMost, 2.5, r.series("Memory/size=1MB", ours, unitAllocated).median()},
		{"16 MiB of tiny things: MB", atMost, 100, worstHostile(r).median()},
		{"idle stream: resident memory, of bare", atMost, 1.25, ratio("Held/size=8KB", unitResident, ours, bare)},
		{"Limiter.Take, 2 buckets: time, of two AllowN", atMost, 4, ratio("Take/buckets=2", unitTime, ours, allowN)},
		{"Limiter.Take, 1,000,000 buckets: time, of two AllowN", atMost, 15, ratio("Take/buckets=1000000", unitTime, ours, allowN)},
		{"Limiter: memory of idle buckets given back", atLeast, 0.9, r.series("Take/idle", ours, unitGivenBack).median()},
		{"gateway 0.5 KB: CPU, of ReverseProxy", atMost, 1.3, cpu("Gateway/size=0.5KB", ours, proxy)},
		{"examples/gateway, 0.5 KB: CPU, of ReverseProxy", atMost, 1.8, cpu("Gateway/size=0.5KB", example, proxy)},
		{"gateway 0.5 KB: added median latency, of ReverseProxy", atMost, 1.2, added(ours).combine(added(proxy), divide).median()},
		{"gateway 1 MB: CPU, of ReverseProxy", atMost, 3, cpu("Gateway/size=1MB", ours, proxy)},
		{"gateway, an agent's request of 150 KB: CPU, of ReverseProxy", atMost, 7, cpu("Gateway/request=agent", ours, proxy)},
		{"gateway stream, paced: CPU, of ReverseProxy", atMost, 1.35, cpu("Gateway/chunks=paced", ours, proxy)},
		{"gateway stream, ready: CPU, of ReverseProxy", atMost, 1.3, cpu("Gateway/chunks=ready", ours, proxy)},
		{"cachegrind, whole 0.5 KB: instructions", atMost, 92000, counted(countWhole, unitInstructions)},
		{"cachegrind, whole 0.5 KB: misses of I1", atMost, 1500, counted(countWhole, unitI1)},
		{"cachegrind, whole 0.5 KB: misses of LL by instructions", atMost, 10, counted(countWhole, unitLLi)},
		{"cachegrind, text chunk: instructions", atMost, 3200, counted(countChunk, unitInstructions)},
		{"cachegrind, text chunk: misses of I1", atMost, 145, counted(countChunk, unitI1)},
	}
}

// allocsPerChunk returns the allocations of one of the 1,000 chunks by which two streams differ,
// rounded to two digits: pools that are filled again after a garbage collection add less than 0.01.
func allocsPerChunk(long, short float64) float64 {
	return math.Round((long-short)/1000*100) / 100
}

// worstHostile returns the largest growth of each round.
func worstHostile(r results) series {
	worst := r.series("Hostile/body="+hostileBodies[0].name, ours, unitPeak)
	for _, h := range hostileBodies[1:] {
		worst = worst.combine(r.series("Hostile/body="+h.name, ours, unitPeak), math.Max)
	}
	return worst
}

// judge returns the measured value with its range, and whether it is within the budget: yes, no,
// or "in range" if only a part of the range is. Both are "-" if nothing was measured.
func (b budget) judge() (measured, met string) {
	f := b.value
	if f.rounds == 0 {
		return "-", "-"
	}
	within := func(value float64) bool { return value == b.limit || (value < b.limit) == (b.bound == atMost) }
	switch {
	case within(f.value):
		met = "yes"
	case within(f.low) || within(f.high):
		met = "in range"
	default:
		met = "no"
	}
	return fmt.Sprintf("%s (%s to %s)", format(f.value), format(f.low), format(f.high)), met
}

// format returns a measured value with three digits, or all before the point if it has more.
func format(value float64) string {
	if math.Abs(value) >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// printReport prints the figures with benchstat, and then the part that
// docs/performance.md has a copy of.
func (b *bench) printReport(w io.Writer) error {
	// benchstat is a tool of this module, at the version that go.mod has.
	cmd := exec.Command("go", "tool", "benchstat", "-table", ".name", "-col", "/impl", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(b.results.format()), w, b.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go tool benchstat: %w", err)
	}
	fmt.Fprintf(w, "\nPrinted by `make bench` on %s with %s on %d CPUs; rounds: %d.\n\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), b.rounds)
	const row = "| %-63s | %-13s | %-22s | %-8s |\n"
	fmt.Fprintf(w, row, "what", "budget", "measured (range)", "met")
	fmt.Fprintf(w, row, "---", "---", "---", "---")
	for _, b := range budgets(b.results) {
		measured, met := b.judge()
		fmt.Fprintf(w, row, b.what, fmt.Sprintf("%s %g", b.bound, b.limit), measured, met)
	}
	return nil
}
