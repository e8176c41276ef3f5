package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// A healthChecker checks in the background whether requests can be served, so
// that /readyz is fast and puts no load on other services.
type healthChecker struct {
	draining context.Context // done when the process is about to end
	checks   []*check
}

// A check tries a part of what serving needs.
type check struct {
	name  string
	grace time.Duration // for which a failure leaves the process ready; negative means forever
	probe func(context.Context) error

	mu         sync.Mutex // guards the fields below
	failing    bool
	lastPassed time.Time // when the last probe that succeeded began
}

// neverUnready is the grace of a check that does not decide whether the process is ready.
// A process that loses what all copies share serves what it can: if each of them told the
// load balancer to send no requests, nobody would be served.
const neverUnready = -1

func newHealthChecker(draining context.Context) *healthChecker {
	return &healthChecker{draining: draining}
}

// add adds a check. It must not be called after check.
func (h *healthChecker) add(name string, grace time.Duration, probe func(context.Context) error) {
	h.checks = append(h.checks, &check{name: name, grace: grace, probe: probe})
}

const (
	checkInterval = time.Second
	checkTimeout  = time.Second
)

// run checks at intervals until ctx is done.
func (h *healthChecker) run(ctx context.Context) {
	for tick := time.Tick(checkInterval); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			h.check(ctx)
		}
	}
}

// check runs each check once.
func (h *healthChecker) check(ctx context.Context) {
	for _, c := range h.checks {
		c.check(ctx)
	}
}

// check runs the probe and notes its result. It logs changes.
func (c *check) check(ctx context.Context) {
	began := time.Now()
	probeCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.probe(probeCtx)
	if ctx.Err() != nil {
		return // the process ends
	}
	c.mu.Lock()
	failed := c.failing
	c.failing = err != nil
	if err == nil {
		c.lastPassed = began
	}
	c.mu.Unlock()
	switch {
	case err != nil && !failed:
		slog.Error("check failed", "check", c.name, "err", err)
	case err == nil && failed:
		slog.Info("check succeeded", "check", c.name)
	}
}

// state returns whether the check succeeded, and whether the process is ready as far as
// the check decides that. The grace begins with the last success, which is before the
// failure, so the process is not ready for longer than what the check tries works.
func (c *check) state(now time.Time) (ok, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.failing, !c.failing || c.grace < 0 || now.Sub(c.lastPassed) < c.grace
}

// state returns whether the process is ready for requests, and the result of each check.
// It is the Health of [otelllm.Options].
func (h *healthChecker) state() (ready bool, checks map[string]bool) {
	now := time.Now()
	ready, checks = h.draining.Err() == nil, make(map[string]bool)
	for _, c := range h.checks {
		ok, r := c.state(now)
		checks[c.name] = ok
		ready = ready && r
	}
	return ready, checks
}

// ServeHTTP answers ok, not ready or draining, and the parts that fail. A process that
// serves cached keys while the database is unavailable is ok although a part
// fails: without it, nobody would be served.
func (h *healthChecker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.draining.Err() != nil {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	ready, checks := h.state()
	text := ""
	for _, c := range h.checks {
		if !checks[c.name] {
			text += c.name + ": failing\n"
		}
	}
	if !ready {
		http.Error(w, "not ready\n"+text, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, "ok\n", text)
}
