#!/bin/bash
# apidiff.sh [BASE] prints for each released module how its API differs from that of the commit BASE,
# such as a tag: without an argument, the last version. Incompatible changes are an error only since v1.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./scripts/release apidiff "$@"
