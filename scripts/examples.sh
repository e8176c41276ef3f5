#!/usr/bin/env bash
# Starts each example, runs the curl commands that it prints, and stops it with
# SIGTERM.
set -euo pipefail
cd "$(dirname "$0")/.."

RACE=${RACE:--race} # flags of scripts/test.sh
dir=$(mktemp -d)
pid= upstream_pid=
cleanup() {
	[[ -z $pid ]] || kill -KILL "$pid" 2>/dev/null || true
	[[ -z $upstream_pid ]] || kill -KILL "$upstream_pid" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

fail() {
	echo "FAIL	$1" >&2
	cat "$dir/out" >&2
	exit 1
}

# run NAME ARGS... tests the example NAME with the arguments ARGS.
run() {
	go build $RACE -o "$dir/example" "./examples/$1"
	: >"$dir/out" # removes the output of the previous example before the loop below reads it
	"$dir/example" -addr 127.0.0.1:0 "${@:2}" >"$dir/out" 2>&1 </dev/null &
	pid=$!
	local i
	for ((i = 0; ; i++)); do
		# The example writes all commands at once, so one complete line means that all are there.
		grep -q '^  curl' "$dir/out" && break
		kill -0 "$pid" 2>/dev/null && ((i < 100)) || fail "examples/$*: does not start"
		sleep 0.1
	done
	local commands=0 command
	while read -r command; do
		echo "$command" | cut -c1-150
		# The options make curl fail if the status is an error.
		eval "${command/#curl/curl -sS --fail-with-body --max-time 20}" >"$dir/reply" 2>&1 </dev/null || {
			cat "$dir/reply" >&2
			fail "examples/$*: $command"
		}
		((++commands))
	done < <(sed -n 's/^  \(curl .*\)/\1/p' "$dir/out")
	((commands > 0)) || fail "examples/$*: prints no commands"
	kill -TERM "$pid"
	for ((i = 0; ; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		((i < 100)) || fail "examples/$*: still running 10 s after SIGTERM"
		sleep 0.1
	done
	local status=0
	wait "$pid" || status=$?
	pid=
	((status == 0)) || fail "examples/$*: exit status $status"
	echo "ok	examples/$*: $commands commands"
}

# start_upstream starts a server for examples/gateway and sets upstream to its address.
start_upstream() {
	go build $RACE -o "$dir/upstream" ./examples/inmemory
	"$dir/upstream" -addr 127.0.0.1:0 >"$dir/upstream.out" 2>&1 </dev/null &
	upstream_pid=$!
	local i
	for ((i = 0; ; i++)); do
		upstream=$(sed -n 's|^listening on http://||p' "$dir/upstream.out")
		[[ -z $upstream ]] || break
		((i < 100)) || fail "examples/inmemory: does not start"
		sleep 0.1
	done
}

run inmemory
run custom -pace 10ms
run hosts
run agent
run cors
start_upstream
sed "s/127.0.0.1:8081/$upstream/" examples/gateway/gateway.json >"$dir/gateway.json"
export FIRST_KEY=sk-demo SECOND_KEY=sk-second GATEWAY_KEY=sk-gateway
run gateway -config "$dir/gateway.json" # its second upstream is away
for router in nethttp chi gin default echo; do
	run mount -router "$router"
done
