#!/bin/bash
# release.sh VERSION, such as v0.1.0-alpha.1, makes a release of all modules that users import. It is a
# dry run: the checkout is not changed, and nothing is published without -push.
#
# It checks the tree. Then in a copy of it, it makes the modules require this version of each other
# without replace, in the order in which they need each other, and makes commits and tags. It
# downloads each module by its tag into a folder that serves as a GOPROXY, and tries all of them from
# empty folders: go get, the quickstart of README.md, the examples of the packages, and go install of
# the commands. bin/release/VERSION then has the copy and the folder, and the output tells how to use
# the folder and how to push the tags. -h lists the flags.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./scripts/release release "$@"
