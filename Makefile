# Only Go must be installed: scripts/setup.sh installs the rest. See CONTRIBUTING.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help check test setup lint fmt tidy cover fuzz soak soak-production soak-reload bench bench-stores bench-console bench-reports bench-responses house screenshots test-agents

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5m
COUNT ?= 20
SOAKTIME ?= 5m
SOAK ?= 30m
BENCHFLAGS ?=
HOUSEFLAGS ?=
MIN_COVER ?= 90

# Builds do not record their commit: git refuses to tell it if another user owns
# the checkout, and the build would fail.
GOFLAGS += -buildvcs=false
export GOFLAGS

# Programs with the race detector exit without waiting for a second.
export GORACE := atexit_sleep_ms=0

# The directories of all modules in go.work, and of one that it cannot have: see scripts/test.sh.
MODULES = $(shell go list -m -f '{{.Dir}}') $(CURDIR)/examples/genkitagent
GOFILES = $(shell find . -name node_modules -prune -o -name .git -prune -o -name '*.go' -print)

## help: lists the targets
help:
	@sed -n 's/^## //p' Makefile

## check: runs the tests that need nothing but Go, and tells what it leaves out
check:
	@scripts/check.sh

## test: runs the tests of all modules, the examples and the client tests
test: setup
	@scripts/test.sh

## test-agents: tests the agents of examples/otheragents, whose frameworks make test does not download
test-agents:
	cd examples/otheragents && GOWORK=off go vet ./... && GOWORK=off go test -count=1 ./...

## setup: installs what the tests need besides Go
setup:
	scripts/setup.sh

# The packages that hosts on other platforms import.
LIBRARIES = . ./manage ./manage/keytext ./responsestore ./form ./audio ./completion ./imageedit ./moderation ./rerank ./all ./textfilter ./usagebuffer ./quotawatch ./keycache ./memory ./messages ./responses ./upstream ./upstream/anthropic ./route ./agent ./pricing ./llmhttptest ./llmhttptest/storetest ./llmhttptest/limitertest

## lint: runs gofmt, go vet and staticcheck, checks each module without go.work, and builds for other platforms
lint:
	@files=$$(gofmt -l $(GOFILES)); \
	if [ -n "$$files" ]; then echo "lint: run make fmt; these files are not formatted:" $$files >&2; exit 1; fi
	go vet work
	go run $(STATICCHECK) work
	scripts/floors.sh
	@for dir in $(MODULES); do \
		echo "lint: $$dir without go.work"; \
		cd "$$dir"; \
		GOWORK=off go mod tidy -diff; \
		GOWORK=off go build -o /dev/null ./...; \
		GOWORK=off go vet ./...; \
		GOWORK=off go test -count=1 -run='^$$' ./... >/dev/null; \
	done
	GOARCH=386 CGO_ENABLED=0 go vet ./... ./llmfake/... ./llmhttpctl/... ./sqlstore/... ./redislimit/... ./otelllm/... ./console/... ./responsesws/...
	@for platform in windows/amd64 darwin/arm64 js/wasm; do \
		echo "lint: build for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 go build $(LIBRARIES); \
	done
	@for script in scripts/*.sh .ci/run; do bash -n "$$script"; done

## fmt: formats every Go file
fmt:
	gofmt -w $(GOFILES)

## tidy: tidies every module
tidy:
	@for dir in $(MODULES); do (cd "$$dir" && GOWORK=off go mod tidy); done

## cover: measures the coverage of the root package by its tests; fails below MIN_COVER (90) percent
cover:
	go test -count=1 -coverprofile=coverage.out .
	@go tool cover -func=coverage.out | awk '/^total:/ { print "total: " $$3; ok = $$3 + 0 >= $(MIN_COVER) } END { exit !ok }' \
		|| { echo "cover: below $(MIN_COVER) %" >&2; exit 1; }

## fuzz: runs each fuzz target for FUZZTIME (5m)
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

## soak: serves misbehaving clients from misbehaving Backends and stores for SOAK (30m), then runs the Go tests COUNT (20) times in random order
soak:
	SOAK_FOR=$(SOAK) go test -race -count=1 -v -timeout=0 -run='^TestSoak$$' ./soak
	go test -race -count=$(COUNT) -shuffle=on -timeout=2h work

## soak-production: runs examples/production for SOAKTIME (5m) with a fault every 20 seconds, which alerts must tell, and copies that are killed while accounts are at their limits
soak-production: setup
	cd examples/production && go test -race -count=1 -v -timeout=1h -run='^TestSoak' -soak=$(SOAKTIME) -soak-interval=10s

## soak-reload: reloads the configuration of examples/gateway every 2 seconds under load, for SOAKTIME (5m)
soak-reload:
	go test -race -count=1 -v -timeout=2h -run='^TestReload_UnderLoad$$' ./examples/gateway -soak=$(SOAKTIME) -soak-interval=2s

## bench: runs the benchmarks and compares them with the budgets; BENCHFLAGS=-short is a quick check that they work
bench:
	@scripts/setup.sh bench >&2
	@go run ./bench $(BENCHFLAGS)

## bench-stores: measures sqlstore with a million records and 100,000 keys, on SQLite and PostgreSQL
bench-stores:
	cd sqlstore && go test -v -timeout=1h -run='^$$' -bench='^BenchmarkStore$$' -records=1000000 -keys=100000

## bench-responses: measures sqlstore with a million stored responses, on SQLite and PostgreSQL
bench-responses:
	cd sqlstore && go test -v -timeout=2h -run='^$$' -bench='^BenchmarkResponses$$' -benchtime=3s -responses=1000000

## bench-console: measures the pages of the console with a million records and 100,000 keys, on SQLite and PostgreSQL
bench-console:
	cd console && go test -v -timeout=1h -run='^$$' -bench='^BenchmarkPages$$' -benchtime=5x -records=1000000 -keys=100000

## bench-reports: measures what reports of a million records do to requests of the API, on PostgreSQL
bench-reports:
	cd console && go test -v -timeout=1h -run='^$$' -bench='^BenchmarkReports$$' -benchtime=1x -records=1000000 -keys=20000 -load-time=1m -load-rate=100

## house: prints the size of each package, what it exports, and how its files depend on each other; HOUSEFLAGS="-dir ../other -commit main" measures another checkout, and the files that a commit touched
house:
	@go run ./bench/house $(HOUSEFLAGS)

## screenshots: writes the pictures of console/README.md
screenshots: setup
	cd console && go test -count=1 -timeout=10m -run='^TestScreenshots$$' -screenshots=../docs/console .
