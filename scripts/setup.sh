#!/usr/bin/env bash
# Installs what the tests need besides Go, unless it is installed: a C compiler
# for the race detector, curl, wrk, taskset, valgrind, PostgreSQL, PgBouncer, Redis, Prometheus,
# Chromium with a font, Python, Node.js with npm, and the npm packages of clients/node. One of these
# is the Node.js on which its tests run. The tests start their own servers: the
# servers of the Debian packages may run or not.
#
# "scripts/setup.sh bench" installs only what "make bench" needs: wrk, taskset and valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v wrk >/dev/null || missing+=(wrk)
command -v taskset >/dev/null || missing+=(util-linux)
command -v valgrind >/dev/null || missing+=(valgrind)
if [[ ${1:-} != bench ]]; then
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v curl >/dev/null || missing+=(curl ca-certificates)
	command -v python3 >/dev/null || missing+=(python3)
	command -v node >/dev/null || missing+=(nodejs)
	command -v npm >/dev/null || missing+=(npm)
	command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
	command -v redis-server >/dev/null || command -v valkey-server >/dev/null || missing+=(redis-server)
	command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]] || missing+=(pgbouncer)
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium fonts-dejavu-core)
	command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
fi

if ((${#missing[@]})); then
	if ! command -v apt-get >/dev/null; then
		echo "setup: install these packages and try again: ${missing[*]}" >&2
		exit 1
	fi
	as_root=()
	if ((EUID != 0)); then
		if ! sudo -n true 2>/dev/null; then
			echo "setup: as root, run: apt-get install ${missing[*]}" >&2
			exit 1
		fi
		as_root=(sudo -n)
	fi
	"${as_root[@]}" apt-get update -qq
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq -y --no-install-recommends "${missing[@]}" </dev/null
fi

if [[ ${1:-} == bench ]]; then
	exit
fi

cd clients/node
node=node_modules/.bin/node
if ! [[ node_modules/.package-lock.json -nt package-lock.json ]] || ! [[ -x $node ]]; then
	npm ci --loglevel=error </dev/null # hides warnings about the version of Node.js that runs npm
fi
version=$("$node" --version)
major=${version#v}
if ((${major%%.*} < 22)); then
	echo "setup: the npm package node has version $version, but the clients need 22; remove clients/node/node_modules and try again" >&2
	exit 1
fi
