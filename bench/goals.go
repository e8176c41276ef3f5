package main

import (
	"fmt"
	"math"
)

// A goal is what a figure ought to be.
type goal struct {
	What  string `json:"what"`
	Limit string `json:"goal"`
	Value string `json:"measured"`
	Met   string `json:"met"` // yes, no, or "" if it was not measured

	most  bool // whether limit is the most that is allowed
	limit float64
	value series
}

func atMost(limit float64, what string, value series) goal {
	return goal{What: what, most: true, limit: limit, value: value}
}

func atLeast(limit float64, what string, value series) goal {
	return goal{What: what, limit: limit, value: value}
}

// judged returns the goals and whether they are met, by the median.
func (r *report) judged() []goal {
	of := func(story, name, subject, metric string) series {
		return r.series(figure{story, name, subject, metric})
	}
	ratio := func(story, name, metric, peer string) series {
		return of(story, name, ours, metric).over(of(story, name, peer, metric))
	}
	takes := limiterSizes(r.bench.short)
	few, many := limiterFigure(takes[0]), limiterFigure(takes[2])
	few.Metric, many.Metric = nanos, nanos
	back := many
	back.Metric = givenBack
	megabyte := of("decoding", "1 MB", plainJSON, nanos)

	goals := []goal{
		atMost(1.5, "whole, 0.5 KB: CPU a request, of bare", ratio("whole", "0.5 KB", cpu, bare)),
		atLeast(2.1, "whole, 0.5 KB: requests/s, of std", ratio("whole", "0.5 KB", perSecond, std)),
		atLeast(2.1, "whole, 8 KB: requests/s, of std", ratio("whole", "8 KB", perSecond, std)),
		atMost(1.05, "stream, a flush a chunk: CPU a stream, of bare", ratio("stream", string(modeTurns), cpu, bare)),
		atLeast(2.5, "stream, a flush a chunk: streams/s, of std", ratio("stream", string(modeTurns), perSecond, std)),
		atLeast(4, "stream, ready at once: streams/s, of bare with a flush a chunk", ratio("stream", string(modeReady), perSecond, bare)),
		atMost(1.5, "stream, first of ready chunks: median delay, of bare", ratio("stream", "delay", firstMedian, bare)),
		atMost(0, "stream, chunks held back when the Backend pauses", of("stream", "delay", ours, heldBack)),
		atMost(0.01, "allocations a chunk, ready", of("inprocess", "chunk, ready", ours, allocs)),
		atMost(20, "allocations a whole request, 0.5 KB", of("inprocess", "whole 0.5 KB", ours, allocs)),
		atLeast(3, "decode of 128 KB: times as fast as encoding/json", of("decoding", "128 KB", plainJSON, nanos).over(of("decoding", "128 KB", ours, nanos))),
		atLeast(10, "decode of 1 MB: times as fast as encoding/json", megabyte.over(of("decoding", "1 MB", ours, nanos))),
		atMost(2.5, "memory of a request of 128 KB, of its body", of("large", "128 KB", ours, coldBytes).times(1.0/(128<<10))),
		atMost(2.5, "memory of a request of 1 MB, of its body", of("large", "1 MB", ours, coldBytes).times(1.0/(1<<20))),
		atMost(100, "16 MiB of tiny things: MB, the worst", r.worstAmplification()),
		atMost(1.4, "gateway, 0.5 KB: CPU a request, of ReverseProxy", ratio("gateway", "0.5 KB", cpu, proxied)),
		atMost(1.5, "gateway, 1 MB: CPU a request, of ReverseProxy", ratio("gateway", "1 MB", cpu, proxied)),
		atMost(1.3, "gateway, paced stream: CPU a stream, of ReverseProxy", ratio("gateway", string(modePaced), cpu, proxied)),
		atMost(1.3, "gateway, ready stream: CPU a stream, of ReverseProxy", ratio("gateway", string(modeReady), cpu, proxied)),
		atMost(1.2, "gateway: added median latency, of ReverseProxy", ratio("gateway", "latency", addedMedian, proxied)),
		atMost(1.05, "held, 0.5 KB: resident memory a stream, of bare", ratio("held", "0.5 KB", settledBytes, bare)),
		atMost(1.05, "held, 128 KB: resident memory a stream, of bare", ratio("held", "128 KB", settledBytes, bare)),
		atMost(400, fmt.Sprintf("limiter, %s buckets: ns a Take of two", count(takes[0])), r.series(few)),
		atMost(400, fmt.Sprintf("limiter, %s buckets: ns a Take of two", count(takes[2])), r.series(many)),
		atLeast(0.9, "limiter: share of the memory of idle buckets that is given back", r.series(back)),
	}
	for i := range goals {
		goals[i].judge()
	}
	return goals
}

func (g *goal) judge() {
	sign := "at least "
	if g.most {
		sign = "at most "
	}
	g.Limit, g.Value = sign+number(g.limit), g.value.spread()
	m := g.value.median()
	switch {
	case math.IsNaN(m):
	case g.most == (m <= g.limit) || m == g.limit:
		g.Met = "yes"
	default:
		g.Met = "no"
	}
}

// worstAmplification returns the most MB by which a body grew the process, of
// each round.
func (r *report) worstAmplification() (worst series) {
	for _, f := range r.order {
		if f.Story != "amplification" || f.Subject != ours || f.Metric != peakBytes {
			continue
		}
		for i, v := range r.series(f).times(1e-6) {
			if i == len(worst) {
				worst = append(worst, v)
			}
			worst[i] = max(worst[i], v)
		}
	}
	return worst
}

// goals returns the table of the goals.
func (r *report) goals() *table {
	t := &table{
		title: "goals",
		head:  []string{"", "goal", "measured", "met"},
		note:  "Met is the median, in parentheses is the range. A - was not measured.",
	}
	for _, g := range r.judged() {
		met := g.Met
		if met == "" {
			met = "-"
		}
		t.row(g.What, g.Limit, g.Value, met)
	}
	return t
}
