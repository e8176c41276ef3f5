// Package soak tests a Handler whose Backend, stores, limiter, observer and
// clients misbehave at random, and checks that its accounts are right and that
// nothing is left behind.
//
// A run is a sequence of worlds. Each has its own Handler, server and clients,
// and a seed that determines what they do; how the goroutines of a world
// interleave differs from run to run. A failure names the seed:
//
//	SOAK_SEED=123 go test -race -run TestSoak ./soak      # this world only
//	SOAK_FOR=30m go test -race -timeout 0 -run TestSoak ./soak
package soak

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shortRun is how long TestSoak runs unless SOAK_FOR says otherwise.
const shortRun = 4 * time.Second

// patience is how long a test waits for what happens soon if all is well.
const patience = 60 * time.Second

func TestSoak(t *testing.T) {
	if s := os.Getenv("SOAK_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SOAK_SEED")
		runWorld(t, seed)
		return
	}
	length := shortRun
	if s := os.Getenv("SOAK_FOR"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err, "SOAK_FOR")
	}
	worlds, requests := 0, 0
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); worlds++ {
		requests += runWorld(t, rand.Uint64())
	}
	t.Logf("%d requests in %d worlds", requests, worlds)
}

// runWorld runs the world with a seed and returns the number of its requests.
func runWorld(t *testing.T, seed uint64) int {
	w := newWorld(seed)
	w.run()
	w.check()
	for _, f := range w.failures {
		t.Errorf("SOAK_SEED=%d: %s", seed, f)
	}
	return w.requests
}

// eventually waits until cond returns true, and reports whether it does.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return true
		}
	}
	return cond()
}

// handlerGoroutines returns the stacks of goroutines that serve or forward a
// request.
func handlerGoroutines() (stacks []string) {
	buf := make([]byte, 16<<20)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, part := range []string{"llmhttp/llmhttp.", "llmhttp/upstream.", "llmhttp/route.", "net/http.(*conn)", "net/http.(*persistConn)", "net/http.(*http2"} {
			if strings.Contains(stack, part) {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}
