#!/usr/bin/env bash
# Runs the tests of all modules, the examples and the client tests. All of them
# run even if some fail; the last lines of the output name those that have failed.
set -uo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bin=$PWD/bin

# step NAME COMMAND... runs a command, and notes what of it has failed.
step() {
	echo "# $1"
	"${@:2}" 2>&1 | tee "$dir/output" && return
	{
		echo "FAIL: $1"
		summarize "$dir/output"
	} >>"$dir/failed"
}

# summarize FILE prints the failing packages, tests and causes of the output of
# go test, scripts/examples.sh or node --test.
summarize() {
	awk '
		/^ *--- FAIL: / || /^(panic|fatal error): / || /^WARNING: DATA RACE/ || /^\t(running tests:|\tTest)/ || /^ *✖ / { if (n < 12) cause[n++] = $0 }
		/^ok/ { n = 0 }
		/^FAIL\t/ { print "  " $0; for (i = 0; i < n; i++) print "    " cause[i]; n = 0 }
		END { for (i = 0; i < n; i++) print "    " cause[i] }
	' "$1" | cut -c1-200
}

in_directory() { (cd "$1" && "${@:2}"); }

go build -race -o bin/ ./examples/inmemory ./examples/gateway ./clients/behind ./clients/scripted || exit 1
step "Go" env LLMHTTP_EXAMPLE="$bin/inmemory" go test -race -count=1 -timeout=20m work
step "Go without the race detector, which changes these results" go test -count=1 -run='^TestAllocs' . ./messages ./responses
step "Go without the race detector, with a million records and users" go test -count=1 -run='^(TestUsage_Plans|TestManyUsers)$' ./sqlstore ./redislimit
step "examples" scripts/examples.sh
step "Node.js" in_directory clients/node env LLMHTTP_EXAMPLE="$bin/inmemory" LLMHTTP_GATEWAY="$bin/gateway" LLMHTTP_SCRIPTED="$bin/scripted" npm --silent test
for gateways in 1 2; do
	behind=(env LLMHTTP_EXAMPLE="$bin/behind" LLMHTTP_GATEWAYS=$gateways LLMHTTP_GATEWAY="$bin/gateway" LLMHTTP_SCRIPTED="$bin/scripted")
	step "Node.js clients, gateways: $gateways" in_directory clients/node "${behind[@]}" npm --silent run test:clients
	step "Go clients, gateways: $gateways" in_directory clients/go "${behind[@]}" go test -race -count=1 .
done

if [[ -e $dir/failed ]]; then
	echo
	cat "$dir/failed"
	exit 1
fi
echo "ok: all tests have passed"
