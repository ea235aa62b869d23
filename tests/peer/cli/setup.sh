#!/bin/bash
# setup.sh: the peer's command line, once, in a cache outside the tree, to be run by the node of ../setup.sh. Prints both prefixes.
# Apart from that one, so that neither is installed anew for a change of the other.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
node=$("$here/../setup.sh") || exit $?
cache=${XDG_CACHE_HOME:-$HOME/.cache}/airlock-tests/peer-cli
prefix=$cache/$(cat "$here"/package*.json "$0" | sha256sum | cut -c1-16)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -e "$prefix/node_modules/paperclipai/dist/index.js" ]; then
	rm -rf "$prefix" "$prefix.new"
	mkdir "$prefix.new"
	cp "$here/package.json" "$here/package-lock.json" "$here/../.npmrc" "$prefix.new"
	if ! (cd "$prefix.new" && npm install --ignore-scripts --omit=optional --omit=peer --no-audit --no-fund --loglevel=error >&2); then
		echo '1..0 # SKIP npm could not deliver the pinned packages' >&2
		exit 77
	fi
	mv "$prefix.new" "$prefix"
fi
printf '%s\n%s\n' "$node" "$prefix"
