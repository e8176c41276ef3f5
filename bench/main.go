// Command bench measures what it costs to serve with llmhttp, side by side
// with other ways to serve the same bytes, and prints tables of it.
//
//	go run . [-short] [-only whole,stream] [-rounds n] [-json file]
//
// Every figure is taken once a round, and the rounds visit the contenders in
// turn, so that what the machine does meanwhile meets them all. The tables show
// the median over the rounds and, in parentheses, the range.
//
// The load comes from this process; each contender is served by a process of
// its own, whose CPU time, memory and system calls are read from the kernel.
// It needs Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A story is a part of the run.
type story struct {
	name  string
	about string
	run   func(*bench) error
}

var stories = []story{
	{"whole", "requests answered whole, over loopback", whole},
	{"stream", "streams of 100 chunks, over loopback", stream},
	{"inprocess", "the Handler alone, and its layers", inProcess},
	{"large", "bodies of 128 KB and 1 MB", large},
	{"amplification", "16 MiB of tiny things", amplification},
	{"gateway", "in front of another server of the format", gateway},
	{"held", "10,000 idle streams", held},
	{"stores", "the limiter, a million keys, and usage", stores},
}

// A bench is one run of the stories.
type bench struct {
	ctx    context.Context
	short  bool
	rounds int
	cores  cores
	log    io.Writer
	report *report
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, log io.Writer) error {
	if len(args) > 0 && args[0] == childFlag {
		return child(args[1:], out)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(log)
	short := flags.Bool("short", false, "take seconds, to see that everything works: the figures mean nothing")
	only := flags.String("only", "", "run these `stories`, separated by commas: "+strings.Join(storyNames(), ", "))
	rounds := flags.Int("rounds", 7, "how often each figure is taken")
	file := flags.String("json", "", "write what every round measured to this `file`")
	pin := flags.Bool("pin", true, "give the server one half of the CPUs and the load the other")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	b := &bench{ctx: ctx, short: *short, rounds: max(*rounds, 1), cores: splitCores(*pin), log: log}
	if b.short {
		b.rounds = 1
	}
	b.report = newReport(out, b)
	b.report.begin()
	began := time.Now()
	for _, s := range chosen {
		b.say("%s: %s", s.name, s.about)
		if err := s.run(b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.report.end(time.Since(began))
	if *file != "" {
		return b.report.save(*file)
	}
	return nil
}

func storyNames() []string {
	var names []string
	for _, s := range stories {
		names = append(names, s.name)
	}
	return names
}

func choose(only string) ([]story, error) {
	if only == "" {
		return stories, nil
	}
	var chosen []story
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(stories, func(s story) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no story %q; there are %s", name, strings.Join(storyNames(), ", "))
		}
		chosen = append(chosen, stories[i])
	}
	return chosen, nil
}

// say tells whoever waits how far the run is.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// window is how long something is measured in one round.
func (b *bench) window(d time.Duration) time.Duration {
	if b.short {
		return d / 20
	}
	return d
}

// size is how many of something there are: n, or few in a short run.
func (b *bench) size(n, few int) int {
	if b.short {
		return few
	}
	return n
}

// eachRound calls f for every round and each of names, beginning with another
// one every time.
func (b *bench) eachRound(rounds int, names []string, f func(name string) error) error {
	for round := range rounds {
		for i := range names {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			name := names[(i+round)%len(names)]
			if err := f(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
