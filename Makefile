# Needs Go; scripts/setup.sh sees to the rest. CONTRIBUTING.md says more.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test setup lint fmt tidy cover fuzz soak bench bench-stores

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5m
COUNT ?= 20
BENCHFLAGS ?=
MIN_COVER ?= 90

# No build needs to know its commit, and a checkout of somebody else's does not
# tell it.
GOFLAGS += -buildvcs=false
export GOFLAGS

# A program with the race detector would otherwise wait for a second at its end.
export GORACE := atexit_sleep_ms=0

# The directories of all modules, as go.work has them.
MODULES = $(shell go list -m -f '{{.Dir}}')
GOFILES = $(shell find . -name node_modules -prune -o -name .git -prune -o -name '*.go' -print)

## help: says what there is
help:
	@sed -n 's/^## //p' Makefile

## test: runs every test of every module, the examples and the clients
test: setup
	go build -race -o bin/ ./examples/inmemory ./examples/gateway ./clients/behind
	LLMHTTP_EXAMPLE=$(CURDIR)/bin/inmemory go test -race -count=1 -timeout=20m work
	go test -count=1 -run='^(TestAllocs|TestAmplification)' . # which the race detector would change
	scripts/examples.sh
	cd clients/node && LLMHTTP_EXAMPLE=$(CURDIR)/bin/inmemory LLMHTTP_GATEWAY=$(CURDIR)/bin/gateway npm test
	cd clients/node && LLMHTTP_EXAMPLE=$(CURDIR)/bin/behind npm run test:clients
	cd clients/go && LLMHTTP_EXAMPLE=$(CURDIR)/bin/behind LLMHTTP_GATEWAYS=2 go test -race -count=1 .

## setup: installs what the tests need besides Go
setup:
	scripts/setup.sh

## lint: checks formats, vets, and builds each module on its own
lint:
	@files=$$(gofmt -l $(GOFILES)); \
	if [ -n "$$files" ]; then echo "lint: these files are not formatted; run make fmt" $$files >&2; exit 1; fi
	go vet work
	go run $(STATICCHECK) work
	@for dir in $(MODULES); do \
		echo "lint: $$dir, alone"; \
		cd "$$dir"; \
		GOWORK=off go mod tidy -diff; \
		GOWORK=off go build -o /dev/null ./...; \
		GOWORK=off go vet ./...; \
		GOWORK=off go test -count=1 -run='^$$' ./... >/dev/null; \
	done
	@for script in scripts/*.sh .ci/run; do bash -n "$$script"; done

## fmt: formats every Go file
fmt:
	gofmt -w $(GOFILES)

## tidy: tidies every module
tidy:
	@for dir in $(MODULES); do (cd "$$dir" && GOWORK=off go mod tidy); done

## cover: measures what the root package's tests cover, at least MIN_COVER (90) percent
cover:
	go test -count=1 -coverprofile=coverage.out .
	@go tool cover -func=coverage.out | awk '/^total:/ { print "total: " $$3; ok = $$3 + 0 >= $(MIN_COVER) } END { exit !ok }' \
		|| { echo "cover: below $(MIN_COVER) %" >&2; exit 1; }

## fuzz: runs each fuzz target for FUZZTIME (5m)
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

## soak: runs the Go tests COUNT (20) times in random order
soak:
	go test -race -count=$(COUNT) -shuffle=on -timeout=2h work

## bench: measures and compares with the budgets; BENCHFLAGS=-short only shows that it works
bench:
	@scripts/setup.sh bench >&2
	@go run ./bench $(BENCHFLAGS)

## bench-stores: measures sqlstore with a million records and 100,000 keys, on SQLite and on PostgreSQL
bench-stores:
	cd sqlstore && go test -count=1 -timeout=30m -run='^TestScale$$' -scale
