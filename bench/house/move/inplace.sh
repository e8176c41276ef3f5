#!/bin/bash
# inplace.sh DIR: makes the commits in place, one after the other.
set -eu
cd "$1"
tool=$(cd "$(dirname "$0")" && pwd)
step() {
	echo "== $1"
	python3 "$tool/$1.py"
	gofmt -w *.go
	git add -A
	git commit -qm "$2"
}
python3 "$tool/p1.py"
step p2 "Requests know nothing of filters, Observers and operations

RewriteTexts is a function. What a chat is to the server is told by an adapter
of the server, and so is what Observers get of a request. The reply of
embeddings is asked for its encoding instead of remembering it."
step p3 "internal/param: the errors for parameters are plain values

They know no type of requests, so what declares the requests can use them, and
the server too. Validate makes an Error of them."
step p4 "Chunks, contexts and the orderer know nothing of the server

The orderer has its own identity of a reply and its own misuses. What a Backend
tells through its context goes to an interface in the context. The transcript
asks the Joiner for the reply, instead of reading its fields."
