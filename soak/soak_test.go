// Package soak tests a Handler whose Backend, stores, limiter, observer and
// clients misbehave at random. It checks that each request is accounted for and that
// no goroutine is leaked.
//
// A run is a sequence of simulations. Each has its own Handler, server and clients,
// and a seed that determines what they do; how the goroutines of a simulation
// interleave differs from run to run. A failure names the seed:
//
//	SOAK_SEED=123 go test -race -run TestSoak ./soak      # this simulation only
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

// waitLimit bounds the wait for an event that is due soon. Only a test that fails waits
// so long.
const waitLimit = 60 * time.Second

func TestSoak(t *testing.T) {
	if s := os.Getenv("SOAK_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SOAK_SEED")
		runSimulation(t, seed)
		return
	}
	length := shortRun
	if s := os.Getenv("SOAK_FOR"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err, "SOAK_FOR")
	}
	simulations, requests := 0, 0
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); simulations++ {
		requests += runSimulation(t, rand.Uint64())
	}
	t.Logf("%d requests in %d simulations", requests, simulations)
}

// runSimulation runs the simulation with a seed and returns the number of its requests.
func runSimulation(t *testing.T, seed uint64) int {
	sim := newSimulation(seed)
	sim.run()
	sim.check()
	for _, f := range sim.failures {
		t.Errorf("SOAK_SEED=%d: %s", seed, f)
	}
	return sim.requests
}

// eventually waits until cond returns true, and reports whether it does.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
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
