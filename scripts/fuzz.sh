#!/usr/bin/env bash
# Usage: scripts/fuzz.sh DURATION
# Runs each fuzz target of each module for DURATION, one after another.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=0
while read -r package dir; do
	grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go); do
		echo "$package $name"
		go test -run='^$' -fuzz="^$name\$" -fuzztime="$1" "$package"
		((++targets))
	done
done < <(go list -f '{{.ImportPath}} {{.Dir}}' work)
echo "ok	$targets fuzz targets, $1 each"
