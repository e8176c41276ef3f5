// Command bench measures what it costs to serve with llmhttp, beside other ways to serve the same
// bytes, and compares the ratios with the budgets of docs/performance.md.
//
//	go run ./bench [-short] [-only whole,stream] [-base command]
//
// Every contender that serves HTTP runs in a process of its own under load from wrk, which
// must be installed. The tables go to standard output, the measurements of each round to
// standard error in the Go benchmark format. It needs Linux, go for benchstat, and valgrind for
// the part cachegrind.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// parts are the groups of cases that -only can select, in the order of their names.
var parts = map[string]func(*bench){
	"whole":      runWhole,      // replies in one piece, with and without otelllm
	"stream":     runStreams,    // streams of 100 chunks
	"bursts":     runBursts,     // chunks that are held back
	"gateway":    runGateways,   // in front of another server
	"held":       runHeld,       // idle open streams
	"memory":     runMemory,     // large and hostile requests
	"decode":     runDecode,     // requests, in process
	"handler":    runHandler,    // allocations, in process
	"limiter":    runLimiter,    // Limiter.Take, in process
	"cachegrind": runCachegrind, // instructions and misses of caches, in process
}

// A bench is one run of the command.
type bench struct {
	short   bool
	only    string
	base    string // the command of another version, or empty
	rounds  int    // how many times each case is measured
	log     io.Writer
	script  string // of wrk
	results results
	err     error // the first error; no case is measured after it
}

func main() {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) == 4 && args[0] == serveFlag:
		err = serve(args[1:], os.Stdin, os.Stdout)
	case len(args) == 4 && args[0] == countFlag:
		debug.SetGCPercent(-1) // what a collection costs depends on when it happens
		err = count(args[1:])
	default:
		err = run(args, os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, log io.Writer) error {
	b := &bench{log: log, rounds: 6}
	if err := b.parse(args); err != nil {
		return err
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk, which generates the load, is not installed: run scripts/setup.sh bench or apt-get install wrk")
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.script = filepath.Join(dir, "load.lua")
	if err := os.WriteFile(b.script, loadScript, 0o600); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if slices.Contains(strings.Split(b.only, ","), name) {
			parts[name](b)
		}
	}
	if b.err != nil {
		return b.err
	}
	return b.printReport(out)
}

// parse reads the command line.
func (b *bench) parse(args []string) error {
	all := strings.Join(slices.Sorted(maps.Keys(parts)), ",")
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(b.log)
	flags.BoolVar(&b.short, "short", false, "run every case for a moment, to show that it works; the figures mean nothing")
	flags.StringVar(&b.only, "only", all, "run these `parts`, separated by commas")
	flags.StringVar(&b.base, "base", "", "put the llmhttp of another version, whose `command` bench this is, under load in turns with this one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for name := range strings.SplitSeq(b.only, ",") {
		if parts[name] == nil {
			return fmt.Errorf("unknown part %q; the parts are %s", name, all)
		}
	}
	benchtime := "100ms"
	if b.short {
		b.rounds, benchtime = 1, "5ms"
	}
	testing.Init() // defines the flag that testing.Benchmark reads
	return flag.Set("test.benchtime", benchtime)
}

// A measurement measures one contender of a case once.
type measurement struct {
	contender string
	measure   func() (values, error)
}

// measureCase measures the contenders of a case one after the other, in every
// round. Each round starts with another contender.
func (b *bench) measureCase(name string, rounds int, ms ...measurement) {
	b.measureRounds(name, rounds, func(round int) (all results, err error) {
		for i := range ms {
			m := ms[(round+i)%len(ms)]
			v, err := m.measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.contender, err)
			}
			all = append(all, result{name, m.contender, v})
		}
		return all, nil
	})
}

// measureRounds calls measure for each round of a case. It does nothing after an error.
func (b *bench) measureRounds(name string, rounds int, measure func(round int) (results, error)) {
	if b.err != nil {
		return
	}
	for round := range rounds {
		all, err := measure(round)
		if err != nil {
			b.err = fmt.Errorf("%s: %w", name, err)
			return
		}
		b.log.Write(all.format())
		b.results = append(b.results, all...)
	}
}
