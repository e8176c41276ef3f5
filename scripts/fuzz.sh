#!/usr/bin/env bash
# Usage: scripts/fuzz.sh DURATION
# Runs each fuzz target of each module for DURATION, one after another. By default go
# test spends a minute on each new input to make it shorter, which is most of DURATION.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=0
while read -r package dir; do
	grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go); do
		echo "$package $name"
		go test -run='^$' -fuzz="^$name\$" -fuzztime="$1" -fuzzminimizetime=1s "$package"
		((++targets))
	done
done < <(go list -f '{{.ImportPath}} {{.Dir}}' work)
echo "ok	$targets fuzz targets, $1 each"
