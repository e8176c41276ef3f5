#!/bin/bash
# floors.sh fails if a package imports one of a floor above it: see docs/architecture.md. Package llm
# imports internal packages only, and what stands between it and the server does not import the server.
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/llmhttp/llmhttp

# deps PACKAGE: sets needed to the packages that it needs, a line each.
deps() { needed=$(go list -deps "$1"); }

fail() { echo "floors: $1" >&2; exit 1; }

deps ./llm
if found=$(grep "^$module\(/\|$\)" <<<"$needed" | grep -v "^$module/internal/\|^$module/llm\$"); then
	fail "package llm needs $found"
fi
for above in ./llm/join ./internal/images ./internal/budget ./internal/routing ./internal/origin ./internal/outage ./internal/redact ./internal/invalid ./internal/texts ./internal/tokens ./internal/order ./internal/openai ./internal/promptcache ./agent ./upstream/internal/client ./upstream/internal/failure ./upstream/internal/payload ./upstream/internal/reply; do
	deps "$above"
	if grep -qx "$module" <<<"$needed"; then
		fail "$above needs the server"
	fi
done

# What stands on the server needs nothing of the protocols, stores and Backends.
for package in ./internal/ability ./internal/wire ./manage ./manage/keytext ./responsestore ./form ./audio ./completion ./imageedit ./moderation ./rerank ./all ./textfilter ./usagebuffer ./quotawatch ./keycache; do
	deps "$package"
	if found=$(grep -E "^$module/(memory|upstream|route|messages|responses|agent|pricing|llmhttptest)(/|$)" <<<"$needed"); then
		fail "$package needs $found"
	fi
done

# An endpoint needs the server, and no other endpoint and nothing that knows endpoints.
for package in ./audio ./completion ./imageedit ./moderation ./rerank; do
	deps "$package"
	if found=$(grep "^$module/" <<<"$needed" | grep -v "^$module/\(internal/\|form$\|llm\($\|/\)\|${package#./}\$\)"); then
		fail "$package needs $found"
	fi
done

# package upstream is for programs without a server too: only its endpoints need that.
if go list -f '{{join .Imports "\n"}}' ./upstream | grep -qx "$module"; then
	fail "package upstream imports the server"
fi

# What is there to be copied has public names alone, and ownendpoint in its tests too.
if found=$(grep -rl --include='*.go' "\"$module/internal/" examples | grep -v '_test\.go$' || grep -rl --include='*.go' "\"$module/internal/" examples/ownendpoint); then
	fail "an internal package is imported by $found"
fi
