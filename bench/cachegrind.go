package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// countFlag is the first argument of the processes of this command that run in cachegrind:
// -count contender what n, where what is countWhole or countChunk.
const countFlag = "-count"

const (
	countWhole = "whole" // n requests for a whole reply
	countChunk = "chunk" // countStreams requests for streams of n text chunks, each of which is flushed on its own
)

const countStreams = 2

// runCachegrind counts what a processor does for a request in process, without the start of the
// process: the difference of a run of many and one of few.
func runCachegrind(b *bench) {
	if _, err := exec.LookPath("valgrind"); err != nil && b.err == nil {
		b.err = errors.New("valgrind, which simulates a processor, is not installed: run scripts/setup.sh bench or apt-get install valgrind, or leave out cachegrind with -only")
	}
	few, many := 100, 600
	if b.short {
		few, many = 2, 4
	}
	// A run of n has n*per operations, of which each has executed so many lines of an evictor.
	measure := func(what string, per int, evicted float64, contenders ...string) {
		if b.base != "" {
			contenders = append(contenders, base)
		}
		var ms []measurement
		for _, contender := range contenders {
			command, name := os.Args[0], contender
			if contender == base {
				command, name = b.base, ours
			}
			ms = append(ms, measurement{contender, func() (values, error) {
				start, err := cachegrind(command, name, what, few)
				if err != nil {
					return nil, err
				}
				counts, err := cachegrind(command, name, what, many)
				for unit := range counts {
					counts[unit] = (counts[unit] - start[unit]) / float64((many-few)*per)
				}
				if err == nil {
					counts[unitInstructions] -= evicted
					counts[unitI1] -= evicted
				}
				return counts, err
			}})
		}
		b.measureCase("Cachegrind/"+what, min(b.rounds, 2), ms...)
	}
	measure(countWhole, 1, 0, ours, std, bare)
	measure(countChunk, countStreams, evictedLines, ours, bare) // the evictor executes an instruction of each
}

// countPattern matches a line of the summary that cachegrind prints.
var countPattern = regexp.MustCompile(`(?m)^==\d+== (.+?): +([\d,]+)`)

// countUnits are the units of the counts, by their names in the summary.
var countUnits = map[string]string{
	"I refs": unitInstructions, "I1 misses": unitI1, "LLi misses": unitLLi, "D1 misses": unitD1, "LLd misses": unitLLd,
}

// cachegrind returns what a process of the command has done to serve a contender, on a processor
// with 32 KB of level 1 for instructions, as much for data, and 512 KB of the last level.
func cachegrind(command, contender, what string, n int) (values, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	summary := filepath.Join(dir, "summary")
	cmd := exec.Command("valgrind", "--tool=cachegrind", "--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64",
		"--cachegrind-out-file=/dev/null", "--log-file="+summary, command, countFlag, contender, what, strconv.Itoa(n))
	// A scheduler that interrupts goroutines after some time would count differently on a busy machine.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	output, err := cmd.CombinedOutput()
	text, _ := os.ReadFile(summary)
	if err != nil {
		return nil, fmt.Errorf("%s in cachegrind: %w: %s%s", contender, err, output, text)
	}
	counts := make(values)
	for _, match := range countPattern.FindAllStringSubmatch(string(text), -1) {
		if unit, ok := countUnits[strings.Join(strings.Fields(match[1]), " ")]; ok {
			if counts[unit], err = strconv.ParseFloat(strings.ReplaceAll(match[2], ",", ""), 64); err != nil {
				return nil, err
			}
		}
	}
	if len(counts) != len(countUnits) {
		return nil, fmt.Errorf("%s in cachegrind: counts are missing: %s", contender, text)
	}
	return counts, nil
}

// count is the main function of a process in cachegrind.
func count(args []string) error {
	contender, what := args[0], args[1]
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	switch what {
	case countWhole:
		return countRequests(contender, n)
	case countChunk:
		return countChunks(contender, n)
	}
	return fmt.Errorf("unknown count %q", what)
}

// countRequests serves n requests of 0.5 KB that arrive as net/http hands them over.
func countRequests(contender string, n int) error {
	h, err := newHandler(contender, modeWhole, "")
	if err != nil {
		return err
	}
	r := chatRequest(512, false)
	for range n {
		req := httptest.NewRequest(http.MethodPost, r.path, bytes.NewReader(r.body))
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			return fmt.Errorf("%s: %s", contender, w.Body)
		}
	}
	return nil
}

// countChunks serves streams of n chunks.
func countChunks(contender string, n int) error {
	evict, err := newEvictor()
	if err != nil {
		return err
	}
	var h http.Handler
	switch contender {
	case ours:
		h = newOurs(pausingBackend(n, evict), llmhttp.Options{})
	case bare:
		h = pausingBare(n, evict)
	default:
		return fmt.Errorf("%s does not stream", contender)
	}
	serve := inProcess(h, chatRequest(512, true))
	for range countStreams {
		serve()
	}
	return nil
}

// pausingBackend returns the Backend of cannedBackend with a pause before each chunk.
func pausingBackend(n int, evict evictor) llmhttp.Backend {
	canned := cannedBackend(n)
	return llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			canned.Chat(ctx, req)(func(c *llm.ChatChunk, err error) bool {
				evict.pause()
				return yield(c, err)
			})
		}
	})
}

// pausingBare returns a handler that writes a prepared chunk n times with a pause before each.
func pausingBare(n int, evict evictor) http.Handler {
	frame := splitFrames(ourReply(modeReady).Body.Bytes())[1]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range n {
			evict.pause()
			w.Write(frame)
			http.NewResponseController(w).Flush()
		}
	})
}

// An evictor is a function whose code has evictedLines lines of the instruction cache, twice as
// many as fit in it. It executes an instruction of each.
type evictor func()

const (
	cacheLine    = 64
	evictedLines = 2 * 32768 / cacheLine
)
