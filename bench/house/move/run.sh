#!/bin/bash
# run.sh DIR OLD: moves the declarations of the worktree DIR by the table, adds the files, and changes what
# follows. OLD is the commit before, whose examples are renamed by a test.
set -eu
dir=$1
tool=$(cd "$(dirname "$0")" && pwd)
export PUBLIC=$(mktemp)
move=$(mktemp)
go build -C "$tool" -o "$move" .
cd "$dir"
python3 "$tool/units.py"
"$move" "$dir" "$tool/table" "$PUBLIC"
cp -r "$tool/testdata/files/." "$dir/"
python3 "$tool/follow.py"
"$tool/rename.sh" "$dir" "$2"
git ls-files -mo --exclude-standard '*.go' | while read -r f; do if [ -f "$f" ]; then echo "$f"; fi; done | xargs gofmt -w
