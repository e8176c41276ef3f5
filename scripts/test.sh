#!/usr/bin/env bash
# Runs the tests of all modules, the examples and the client tests. All of them
# run even if some fail; the last lines of the output tell what took longest and what
# has failed. An interrupt ends whatever is running.
set -uo pipefail
cd "$(dirname "$0")/.."

# Monitor mode makes a process group of each background job, which cleanup ends.
set -m
dir=$(mktemp -d)
touch "$dir/steps" "$dir/packages"
bin=$PWD/bin
cleanup() {
	trap '' INT TERM HUP
	local group
	for group in $(jobs -p); do
		kill -TERM -- "-$group"
		for ((i = 0; i < 50; i++)); do
			kill -0 -- "-$group" || break
			sleep 0.1
		done
		kill -KILL -- "-$group"
	done 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# step NAME COMMAND... runs a command, and notes what of it has failed and how long it took.
step() {
	echo "# $1"
	local output="$dir/output.$BASHPID"
	scripts/timed.sh "$dir/steps" "$@" 2>&1 | tee "$output" && return
	{
		echo "FAIL: $1"
		summarize "$output"
	} >>"$output.failed"
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

# print_times FILE prints the lines of timed.sh in FILE, by wall time.
print_times() {
	awk -F '\t' -v root="$PWD/" '
		function minutes(s) { return sprintf("%d:%02d", s / 60, int(s % 60)) }
		NF == 2 { split($1, t, " "); sub(root, "./", $2); printf "%10.1f %8s %8s  %s\n", t[1], minutes(t[1]), minutes(t[2] + t[3]), $2 }
	' "$1" | sort -rn | cut -c 11-
}

# Tests with these names run without the race detector, which allocates and is ten times slower.
no_race='^TestAllocs|_NoRace$'

# SQLite compiles without it: it is large, and Go that nobody here writes. The detector does not see the atomic operations
# of such code, so no other module is here: there would be reports of races that are none.
race=(-race '-gcflags=modernc.org/...=-race=false')
export RACE="${race[*]}"

# Tests of programs around the SDKs of vendors run without it too, because these compile for minutes. The servers that they
# talk to are other processes, which have it.
sdks='/(clients/go|examples/(fake|agenttest|einoagent|openaiagent))(/|$)'

# The packages that take longest come first, so that none of them runs alone at the end.
slow=(./sqlstore ./examples/production ./console ./redislimit .)

go_tests() {
	local packages without
	mapfile -t packages < <(go list work | grep -vE "$sdks")
	# go test would compile too. This only tells how long that takes.
	scripts/timed.sh "$dir/steps" "Go: compiling" go list "${race[@]}" -export -test "${packages[@]}" >/dev/null 2>&1
	step "Go" env LLMHTTP_EXAMPLE="$bin/inmemory" go test "${race[@]}" -vet=off -exec="$PWD/scripts/timed.sh $dir/packages -" -count=1 -timeout=40m -skip="$no_race" "${slow[@]}" "${packages[@]}"
	mapfile -t without < <(grep -rlE '^func Test(Allocs|.*_NoRace\()' --include='*_test.go' . | xargs -n 1 dirname | sort -u)
	step "Go without the race detector" go test -vet=off -count=1 -timeout=40m -run="$no_race" "${without[@]}"
	mapfile -t without < <(go list work | grep -E "$sdks")
	step "Go with SDKs" env LLMHTTP_EXAMPLE="$bin/inmemory" go test -vet=off -count=1 -timeout=40m "${without[@]}"
	# Genkit needs an older version of a module that Anthropic's SDK has too, so it is not in go.work.
	step "Go with Genkit" env -C examples/genkitagent GOWORK=off go test -vet=off -count=1 -timeout=40m ./...
}

client_tests() {
	step "examples" scripts/examples.sh
	step "Node.js" env -C clients/node LLMHTTP_EXAMPLE="$bin/inmemory" LLMHTTP_GATEWAY="$bin/gateway" LLMHTTP_SCRIPTED="$bin/scripted" npm --silent test
	local gateways behind
	for gateways in 1 2; do
		behind=(env LLMHTTP_EXAMPLE="$bin/behind" LLMHTTP_GATEWAYS=$gateways LLMHTTP_GATEWAY="$bin/gateway" LLMHTTP_SCRIPTED="$bin/scripted")
		step "Node.js clients, gateways: $gateways" env -C clients/node "${behind[@]}" npm --silent run test:clients
		step "Go clients, gateways: $gateways" env -C clients/go "${behind[@]}" go test -vet=off -count=1 -parallel=8 .
	done
}

scripts/timed.sh "$dir/steps" "building the examples" go build "${race[@]}" -o bin/ ./examples/inmemory ./examples/gateway ./clients/behind ./clients/scripted || exit 1

# Most tests of clients wait, so they run beside the others. Their output comes later.
client_tests </dev/null >"$dir/clients" 2>&1 &
go_tests </dev/null &
wait "$!"
wait
cat "$dir/clients"

printf '\n%8s %8s  what (minutes:seconds; CPU without servers that outlive their test)\n' wall CPU
print_times "$dir/steps"
echo "of the step Go, the tests of these packages:"
print_times "$dir/packages" | head -n 20

failed=("$dir"/*.failed)
if [[ -e ${failed[0]} ]]; then
	echo
	cat "${failed[@]}"
	exit 1
fi
echo "ok: all tests have passed"
