package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// A healthChecker checks in the background whether requests can be served, so
// that /readyz is fast and puts no load on other services.
type healthChecker struct {
	checks []*check
	report atomic.Pointer[healthReport]
}

// A check tries a part of what serving needs.
type check struct {
	name  string
	grace time.Duration // for which a failure leaves the process ready
	probe func(context.Context) error

	failingSince time.Time // zero if the last probe succeeded
}

// A healthReport is the result of all checks.
type healthReport struct {
	ready bool
	text  string // the parts that fail, one in a line
}

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

// check makes a new report.
func (h *healthChecker) check(ctx context.Context) {
	report := &healthReport{ready: true}
	for _, c := range h.checks {
		if !c.check(ctx) {
			report.ready = report.ready && time.Since(c.failingSince) < c.grace
			report.text += c.name + ": failing\n"
		}
	}
	if ctx.Err() == nil {
		h.report.Store(report)
	}
}

// check reports whether the probe succeeds. It logs changes.
func (c *check) check(ctx context.Context) bool {
	probeCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.probe(probeCtx)
	switch {
	case ctx.Err() != nil:
	case err != nil && c.failingSince.IsZero():
		c.failingSince = time.Now()
		slog.Error("check failed", "check", c.name, "err", err)
	case err == nil && !c.failingSince.IsZero():
		c.failingSince = time.Time{}
		slog.Info("check succeeded", "check", c.name)
	}
	return err == nil
}

// ServeHTTP answers ok or not ready, and the parts that fail. A process that
// serves cached keys while the database is unavailable is ok although a part
// fails: without it, nobody would be served.
func (h *healthChecker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report := h.report.Load()
	if !report.ready {
		http.Error(w, "not ready\n"+report.text, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, "ok\n", report.text)
}
