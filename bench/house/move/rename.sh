#!/bin/bash
# rename.sh DIR COMMIT, with the file PUBLIC of the mover: makes docs/rename/renames.txt, and testdata of the examples of COMMIT.
set -eu
cd "$1"
{
cat <<'T'
# The old and the new names of what has left package llmhttp: see main.go. By hand remain:
# r.RewriteTexts(f) is llmhttp.RewriteTexts(r, f), and u.Units() is llmhttp.UnitsOf(u).
T
cat "$PUBLIC"
} > docs/rename/renames.txt
for name in agent cache custom guardrail hosts proxy redaction; do
	mkdir -p "docs/rename/testdata/$name"
	git ls-tree --name-only "$2" "examples/$name/" | grep '\.go$' | grep -v _test | while read -r f; do
		git show "$2:$f" > "docs/rename/testdata/$name/$(basename "$f").txt"
	done
done
