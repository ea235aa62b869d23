# shellcheck shell=bash
# lib.sh: what the tests of this directory share. Sourced by bash.
#
# AIRLOCK names the program under test; each test has a home, a state directory and a workspace of its own below $T.
# Results are TAP lines. Two ways in, so that each test runs both: as the caller, and, when that is
# root, as an ordinary user.
set -u
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AIRLOCK=${AIRLOCK:?the program under test}
agents=$("$here/setup.sh") || exit $?
tools=/opt/airlock-tests # this directory, inside
failures=0 cases=0
caller=() # variables of the caller of airlock, for cases that need some

T=$(mktemp -d "${TMPDIR:-/tmp}/airlock-agents.XXXXXX")
chmod 755 "$T"
trap 'rm -rf "${T:?}"' EXIT
if [ "$(id -u)" = 0 ]; then
	# Root's cache is closed to the ordinary user of the second round; links cost nothing.
	cp -al "$agents" "$T/agents" 2>/dev/null || cp -a "$agents" "$T/agents"
	agents=$T/agents
fi
PATH=$agents/bin:$PATH

ok() {
	cases=$((cases + 1))
	echo "ok $cases - $*"
}

not_ok() {
	cases=$((cases + 1)) failures=$((failures + 1))
	echo "not ok $cases - $*"
	local f
	for f in "$T/out" "$T/err"; do
		[ -s "$f" ] && sed "s|^|# ${f##*/}: |" "$f" | tail -n 40
	done
	return 0
}

# check TEXT COMMAND...: one case
check() {
	local text=$1
	shift
	if "$@"; then ok "$text"; else not_ok "$text"; fi
}

finish() {
	echo "1..$cases"
	[ "$failures" = 0 ]
}

# Whom to run as: "self", and "ordinary" when the test is root.
users() {
	echo self
	[ "$(id -u)" != 0 ] || echo ordinary
}

# fresh USER: home, state and workspace for one case
fresh() {
	user=$1
	rm -rf "${T:?}/home" "${T:?}/state" "${T:?}/ws"
	mkdir -p "$T/home" "$T/state" "$T/ws"
	W=$T/ws
	printf 'Hello, world\n' >"$W/greeting.txt"
	# What the agent is to run with its shell tool: proves that tools see each other's work.
	printf 'grep -q airlock greeting.txt && echo passed >check.out\n' >"$W/check.sh"
	printf 'left alone\n' >"$W/other.txt"
	git -C "$W" init -q
	git -C "$W" add -A
	git -C "$W" -c user.name=t -c user.email=t@example.org commit -qm start
	[ "$user" = self ] || chown -R 65534:65534 "$T/home" "$T/state" "$T/ws"
	(cd "$W" && listing) >"$T/before"
}

# Every path outside .git with mode and content.
listing() {
	find . -path ./.git -prune -o -printf '%p %y %m ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) |
		sed 's|  \./.*||' | sort
}

# airlock ARGS...: as the current user, with nothing of the caller's environment; stdout and stderr into files
airlock() {
	local as=()
	[ "$user" = self ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	(cd "$W" && env -i PATH=/usr/bin:/bin HOME="$T/home" XDG_STATE_HOME="$T/state" LANG=C.UTF-8 "${caller[@]}" \
		"${as[@]}" "$AIRLOCK" "$@" </dev/null >"$T/out" 2>"$T/err")
	status=$?
}

# run ARGS...: airlock run with the CLIs and this directory inside
run() {
	airlock run --bind-ro "$agents:/opt/agents" --bind-ro "$here:$tools" "$@"
}

status_is() {
	[ "$status" = "$1" ] || {
		echo "# exit status $status instead of $1"
		return 1
	}
}

out_has() {
	grep -q -- "$1" "$T/out" || {
		echo "# stdout has no '$1'"
		return 1
	}
}

err_has() {
	grep -q -- "$1" "$T/err" || {
		echo "# stderr has no '$1'"
		return 1
	}
}

out_lacks() {
	! grep -q -- "$1" "$T/out"
}

# changed LINES...: exactly these paths differ from the start, as "+path", "-path", "~path"
changed() {
	local got
	(cd "$W" && listing) >"$T/after"
	got=$(awk 'NR == FNR {b[$1] = $0; next} {a[$1] = $0}
		END {for (p in a) if (!(p in b)) print "+" p; else if (a[p] != b[p]) print "~" p
		     for (p in b) if (!(p in a)) print "-" p}' "$T/before" "$T/after" | LC_ALL=C sort)
	[ "$got" = "$(printf '%s\n' "$@" | LC_ALL=C sort)" ] || {
		echo "# changed on the host: $got"
		return 1
	}
}

# Nothing in the host's home but what was there: the CLI's state stayed inside.
home_untouched() {
	local got
	got=$(find "$T/home" -mindepth 1 | head -n 5)
	[ -z "$got" ] || {
		echo "# in the host's home: $got"
		return 1
	}
}
