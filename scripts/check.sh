#!/usr/bin/env bash
# Runs go vet and the tests of all modules that need nothing but Go, without the race detector, and
# tells which it leaves out. "make test" runs all of them.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
go test -short -vet=all -v work >"$log" 2>&1 || status=1
grep -aE '^(ok|FAIL)\b|^ *--- FAIL: |^panic: |^(vet: )?\S+\.go:[0-9]+:[0-9]+: ' "$log"
echo
echo "left out, by what the tests need:"
sed -n 's/.*make check leaves this out: needs //p' "$log" | sort | uniq -c
echo "  also the examples and clients of scripts/test.sh, and the race detector"
if ((status)); then
	echo "check: failed; the whole output of a package: go test -short -v ./package" >&2
fi
exit $status
