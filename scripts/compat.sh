#!/bin/bash
# compat.sh [-short] [BASE] builds and tests the nested modules of the commit BASE, such as a tag, with
# the root module of HEAD. Users have this if they upgrade the root module alone. BASE is the last
# version without an argument. It prints what is broken, which is an error only after the first version.
# The tests need what "make test" needs, except with -short.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./scripts/release compat "$@"
