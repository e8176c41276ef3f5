package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Units of the measured values, as benchstat knows them.
const (
	unitCPU       = "cpu-sec/op" // CPU time of the server for one reply
	unitLatency   = "p50-sec"    // median latency
	unitTime      = "sec/op"
	unitAllocs    = "allocs/op"
	unitLate      = "late-chunks"
	unitResident  = "resident-B/op"  // resident memory of the server for one stream
	unitPeak      = "peak-MB"        // growth of the server's resident memory
	unitAllocated = "allocated/body" // bytes allocated for a request, for each byte of its body
	unitGivenBack = "given-back"     // share of the memory of idle buckets

	// What cachegrind counts.
	unitInstructions = "instructions/op"
	unitI1           = "I1-misses/op"  // of the first level, by instructions
	unitLLi          = "LLi-misses/op" // of the last level, by instructions
	unitD1           = "D1-misses/op"
	unitLLd          = "LLd-misses/op"
)

// values are measured values by their units.
type values map[string]float64

// A result is what one round measured of a contender in a case.
type result struct {
	name      string // of the case, by the rules of the Go benchmark format
	contender string
	values    values
}

// results are in the order in which they were measured.
type results []result

// series returns the values of all rounds. It is empty if there are none.
func (r results) series(name, contender, unit string) (s series) {
	for _, res := range r {
		if v, ok := res.values[unit]; ok && res.name == name && res.contender == contender {
			s = append(s, v)
		}
	}
	return s
}

// format returns the results in the Go benchmark format.
func (r results) format() []byte {
	var b bytes.Buffer
	for _, res := range r {
		fmt.Fprintf(&b, "Benchmark%s/impl=%s 1", res.name, res.contender)
		for _, unit := range slices.Sorted(maps.Keys(res.values)) {
			fmt.Fprintf(&b, " %v %s", res.values[unit], unit)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// A series has one value for each round.
type series []float64

// combine applies f to the values of s and t, round by round.
func (s series) combine(t series, f func(a, b float64) float64) series {
	out := make(series, min(len(s), len(t)))
	for i := range out {
		out[i] = f(s[i], t[i])
	}
	return out
}

func divide(a, b float64) float64   { return a / b }
func subtract(a, b float64) float64 { return a - b }

// A figure is a value that was measured in several rounds, with the range of the rounds.
type figure struct {
	value, low, high float64
	rounds           int // zero if it was not measured
}

// median returns the median of s.
func (s series) median() figure {
	if len(s) == 0 {
		return figure{}
	}
	sample := benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds)
	return figure{benchmath.AssumeNothing.Summary(sample, 0.95).Center, sample.Values[0], sample.Values[len(s)-1], len(s)}
}
